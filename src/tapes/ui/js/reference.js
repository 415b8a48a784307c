// The merged document in a viewer: this API and all services. The token of the page is sent along.
const token = sessionStorage.getItem('tapes.token') || '';
window.SwaggerUIBundle({
  url: '/openapi',
  dom_id: '#reference',
  deepLinking: true,
  validatorUrl: null,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  requestInterceptor(request) {
    if (token) request.headers['x-tapes-token'] = token;
    return request;
  },
});

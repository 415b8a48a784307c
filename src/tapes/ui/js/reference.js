// The merged document in a viewer: this API and all services. The token of the page is sent along, and its
// theme holds here.
import { prefs } from './parts/prefs.js';

const dark = matchMedia('(prefers-color-scheme: dark)');
function shade() {
  const { theme } = prefs.get();
  document.documentElement.classList.toggle('dark-mode', theme === 'dark' || (theme === 'system' && dark.matches));
}
dark.addEventListener('change', shade);
shade();

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

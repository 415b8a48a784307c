// A cassette service in Node.js, without a line of this project and without a package.
//
//   node examples/service-in-node/service.mjs
//   tapes cassette validate http://127.0.0.1:9998/openapi

import { createServer } from "node:http";

const name = process.env.CASSETTE_NAME ?? "reverse";
const [host, port] = (process.env.CASSETTE_LISTEN ?? "127.0.0.1:9998").split(":");

const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const json = (schema) => ({ "application/json": { schema } });

const document = {
  openapi: "3.1.0",
  info: { title: "Reverse", version: "0.1.0" },
  "x-tapes-cassette": {
    kind: "cassette/v1alpha1",
    cassette: { name, version: "0.1.0", description: "Reverses texts." },
    depends: { core: "v1" },
  },
  paths: {
    [`/api/${name}/reverse`]: {
      post: {
        operationId: "reverse",
        summary: "Reverse a text",
        "x-tapes-mcp": { name: "reverse", annotations: { readOnlyHint: true, idempotentHint: true } },
        requestBody: { required: true, content: json(object({ text: { type: "string" } })) },
        responses: {
          200: { description: "The text, reversed", content: json(object({ text: { type: "string" } })) },
        },
      },
    },
    [`/api/${name}/ticks`]: {
      get: {
        operationId: "ticks",
        summary: "Three events, one after the other",
        responses: { 200: { description: "Events", content: { "text/event-stream": {} } } },
      },
    },
  },
};

const answer = (response, status, value) => {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
};

const reverse = async (request, response) => {
  let text = "";
  for await (const piece of request) text += piece;
  try {
    answer(response, 200, { text: [...JSON.parse(text).text].reverse().join("") });
  } catch {
    answer(response, 400, { error: "the body is {\"text\": …}" });
  }
};

const ticks = async (response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const n of [1, 2, 3]) {
    response.write(`data: ${n}\n\n`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  response.end();
};

const server = createServer((request, response) => {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /ping") answer(response, 200, { status: "ok", cassette: name });
  else if (route === "GET /openapi") answer(response, 200, document);
  else if (route === `POST /api/${name}/reverse`) reverse(request, response);
  else if (route === `GET /api/${name}/ticks`) ticks(response);
  else answer(response, 404, { error: "there is nothing here" });
});

server.listen(Number(port), host, () => {
  console.log(`${name}: http://${host}:${server.address().port}/openapi`);
});

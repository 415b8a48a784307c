// Shows the OpenAPI document of this server, and sends requests to it; nothing leaves for elsewhere.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const main = document.getElementById("operations");

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function headers() {
  const token = document.getElementById("token").value;
  return token ? { "x-tapes-token": token } : {};
}

function bodyOf(operation) {
  return Boolean(operation.requestBody);
}

function shown(path, method, operation, document_) {
  const box = element("details");
  box.dataset.text = `${method} ${path} ${operation.summary || ""}`.toLowerCase();
  box.append(
    element("summary", "", element("b", method.toUpperCase()), element("code", path),
      element("span", ` ${operation.summary || ""}`)),
  );
  box.addEventListener("toggle", () => {
    if (box.open && box.children.length === 1) fill(box, path, method, operation, document_);
  });
  return box;
}

function fill(box, path, method, operation, document_) {
  box.append(element("p", operation.description));
  const inputs = new Map();
  const table = element("table");
  for (const parameter of operation.parameters || []) {
    const input = element("input");
    input.ariaLabel = parameter.name;
    inputs.set(input, parameter);
    table.append(element("tr", "",
      element("td", "", element("code", parameter.name)), element("td", parameter.in),
      element("td", "", input),
      element("td", parameter.description || (parameter.schema || {}).description || "")));
  }
  const body = element("textarea");
  body.ariaLabel = "body";
  const answer = element("pre");
  const send = element("button", "Send");
  send.addEventListener("click", async () => {
    answer.textContent = "…";
    try {
      answer.textContent = await sent(path, method, inputs, bodyOf(operation) ? body.value : null);
    } catch (error) {
      answer.textContent = String(error);
    }
  });
  box.append(table);
  if (bodyOf(operation)) box.append(element("p", "Body (JSON)"), body);
  box.append(element("p", "", send), answer);
}

async function sent(path, method, inputs, body) {
  const query = new URLSearchParams();
  const more = headers();
  for (const [input, parameter] of inputs) {
    if (parameter.in === "path") {
      path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    } else if (input.value && parameter.in === "query") query.append(parameter.name, input.value);
    else if (input.value && parameter.in === "header") more[parameter.name] = input.value;
  }
  if (body) more["content-type"] = "application/json";
  const url = query.size ? `${path}?${query}` : path;
  const options = { method: method.toUpperCase(), headers: more };
  if (body) options.body = body;
  const answer = await fetch(url, options);
  const text = await answer.text();
  let pretty = text;
  try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* it is no JSON */ }
  return `${answer.status} ${url}\n\n${pretty}`;
}

async function load() {
  const answer = await fetch("/openapi", { headers: headers() });
  if (!answer.ok) {
    main.replaceChildren(element("p", `${answer.status}: ${(await answer.json()).detail}`));
    return;
  }
  const document_ = await answer.json();
  const boxes = [];
  for (const [path, item] of Object.entries(document_.paths)) {
    for (const method of METHODS) {
      if (item[method]) boxes.push(shown(path, method, item[method], document_));
    }
  }
  main.replaceChildren(...boxes);
}

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const box of main.children) box.hidden = !(box.dataset.text || "").includes(wanted);
});
document.getElementById("token").addEventListener("change", load);
load();

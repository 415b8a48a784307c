// Cassette services: how they are and were, what they offer, what is wrong in plain words.
import { html, useEffect, useState } from '../parts/view.js';
import { ask, query, useAsk } from '../parts/api.js';
import { link, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Asked, Blank, CopyLine, Icon, Text, When, say } from '../parts/pieces.js';
import * as f from '../parts/format.js';

const HEALTH = { up: ['good', 'done'], degraded: ['warn', 'warn'], down: ['bad', 'error'], starting: ['', 'more'] };
const Health = ({ state }) => html`<span class=${`badge ${(HEALTH[state] || [''])[0]}`}><${Icon} name=${(HEALTH[state] || ['', 'more'])[1]} />${state}</span>`;

export function Screen() {
  const { path: [, name] } = useRoute();
  useTitle(name);
  const asked = useAsk('/v1/cassettes');
  const [busy, setBusy] = useState('');
  useEffect(() => {
    const timer = setInterval(asked.reload, 5000);
    return () => clearInterval(timer);
  }, []);
  const recheck = (params, what) => {
    setBusy(what);
    ask(query('/v1/cassettes/-/recheck', params), { method: 'POST' }).then(() => { say('Asked again'); asked.reload(); }, (problem) => say(problem.message)).finally(() => setBusy(''));
  };
  useKeys([
    { key: 'r', label: 'recheck', run: () => recheck({}, 'all') },
    { key: 'Escape', shown: 'Esc', label: 'back', hidden: !name, run: () => history.back() },
  ]);
  if (asked.problem?.status === 404) {
    return html`<div class="page"><${Head} /><${Blank} title="No services are hosted here"><p>A cassette service is a small HTTP server of your own that extends this API: its routes, its tools, its document. Start one from a scaffold, and name it when you serve:</p>
      <div class="fit stack"><${CopyLine} text="tapes cassette new my-service" /><${CopyLine} text="TAPES_CASSETTES=http://127.0.0.1:9000 tapes serve" /></div></${Blank}></div>`;
  }
  return html`<div class="page"><${Head}><button class="button" disabled=${Boolean(busy)} onClick=${() => recheck({}, 'all')}>${busy === 'all' ? 'Asking…' : 'Recheck all'}</button></${Head}>
    <${Asked} asked=${asked} rows=${6}>${(found) => html`<${All} found=${found} name=${name} recheck=${recheck} busy=${busy} />`}</${Asked}></div>`;
}

const Head = ({ children }) => html`<div class="row wrap"><h1 class="grow">Services</h1>${children}<a class="button" href="/ui/reference.html" target="_blank" rel="noopener">API reference<${Icon} name="open" /></a></div>`;

function All({ found, name, recheck, busy }) {
  const { cassettes, problems, sources, withdrawn_tools: withdrawn = [] } = found;
  if (!sources?.length && !cassettes.length) {
    return html`<${Blank} title="No services yet"><p>Name the addresses of services when you serve; each is asked for its document, admitted, and offered here under <code>/v1/cassettes</code> and over MCP.</p><div class="fit stack"><${CopyLine} text="tapes cassette new my-service" /><${CopyLine} text="TAPES_CASSETTES=http://127.0.0.1:9000 tapes serve" /></div></${Blank}>`;
  }
  return html`${problems.length > 0 && html`<section class="panel"><header><h2>${f.plural(problems.length, 'problem')}</h2></header><ul class="problems">${problems.map((problem) => html`<li key=${problem.source ?? problem.subject}>
      <p class="row wrap"><${Icon} name="error" /><b class="grow"><${Text}>${problem.subject}</${Text}>: <${Text}>${problem.reason}</${Text}></b>${problem.source && html`<button class="button" disabled=${Boolean(busy)} onClick=${() => recheck({ source: problem.source }, problem.source)}>Recheck</button>`}</p>
      <p class="dim">since <${When} at=${problem.since} />, ${f.plural(problem.count, 'time')}${problem.next_attempt && html`; next attempt <${When} at=${problem.next_attempt} />`}</p>
      ${problem.problems?.some((each) => each.message !== problem.reason) && html`<ul class="inner">${problem.problems.map((each, i) => html`<li key=${i}><code><${Text}>${each.field || each.stage}</${Text}>${each.line ? `:${each.line}` : ''}</code> <${Text}>${each.message}</${Text}></li>`)}</ul>`}
      <p><b>What to do:</b> <${Text}>${problem.remedy}</${Text}></p></li>`)}</ul></section>`}
    ${cassettes.map((service) => html`<${Service} key=${service.name} service=${service} isOpen=${name === service.name || cassettes.length === 1} recheck=${recheck} busy=${busy} />`)}
    ${withdrawn.length > 0 && html`<section class="panel"><header><h2>Withdrawn tools</h2></header><ul class="inside">${withdrawn.map((tool) => html`<li key=${tool.name}><code>${tool.name}</code> <span class="dim">was offered by ${tool.cassette} until <${When} at=${tool.at} /></span></li>`)}</ul></section>`}`;
}

function Service({ service, isOpen, recheck, busy }) {
  const { health } = service;
  return html`<section class="panel service" id=${service.name}><header><${Health} state=${health.state} /><h2><a href=${link(['service', service.name])}><${Text}>${service.display_name || service.name}</${Text}></a> ${service.version && html`<${Text} class="faint">${service.version}</${Text}>`}</h2>
      ${health.latency_ms != null && html`<span class="dim tnum" title="how long its document took">${f.duration(health.latency_ms * 1e6)}</span>`}<button class="button" disabled=${Boolean(busy)} onClick=${() => recheck({ cassette: service.name }, service.name)}>Recheck</button></header>
    <div class="inside stack">${service.description && html`<${Text} as="p">${service.description}</${Text}>`}
      <${History} health=${health} />
      <dl class="facts"><dt>Routes</dt><dd><code>${service.route_prefix}</code></dd><dt>Document</dt><dd><a href=${service.openapi_path}>${service.openapi_path}</a> <span class="badge">${service.openapi_status}</span></dd>
        ${health.consecutive_failures > 0 && html`<dt>Failures</dt><dd class="bad">${health.consecutive_failures} in a row; last success <${When} at=${health.last_success} /></dd>`}
        ${health.probe && html`<dt>Probe</dt><dd><code>${health.probe.path}</code> <${Text}>${health.probe.said || (health.probe.status ?? 'no answer')}</${Text}></dd>`}
        <dt>Reads</dt><dd>${service.depends.views.length ? service.depends.views.join(', ') : 'nothing of the log'}</dd>
        ${service.traffic && html`<dt>Traffic</dt><dd class="tnum">${Object.entries(service.traffic).filter(([, value]) => typeof value === 'number').map(([key, value]) => `${key.replaceAll('_', ' ')} ${f.count(value)}`).join(', ') || f.NONE}</dd>`}
        ${service.license && html`<dt>Licence</dt><dd>${service.license}</dd>`}</dl>
      <details class="fold" open=${isOpen}><summary>${f.plural(service.tools.length, 'tool')}</summary>${service.tools.length ? html`<ul class="toolbox">${service.tools.map((tool) => html`<li key=${tool.name}><p class="row wrap"><${Icon} name="tool" /><code>${tool.name}</code>${tool.alias !== tool.name && html`<code class="faint">${tool.alias}</code>`}${tool.held && html`<span class="badge warn">held: its text changed, approve it first</span>`}</p><${Text} as="p" class="dim">${tool.description}</${Text}></li>`)}</ul>${service.tools.some((tool) => tool.held) && html`<${CopyLine} text=${`tapes cassette approve ${service.name}`} label="Copy the command that approves them" />`}` : html`<p class="dim">It offers none.</p>`}</details>
      ${service.config.length > 0 && html`<details class="fold"><summary>${f.plural(service.config.length, 'setting')}</summary><table class="plain"><thead><tr><th scope="col">Setting</th><th scope="col">Variable</th><th scope="col">Type</th><th scope="col">Default</th></tr></thead><tbody>${service.config.map((each) => html`<tr key=${each.key}><th scope="row"><${Text}>${each.key}</${Text}>${each.required && html` <span class="badge">required</span>`}${each.secret && html` <span class="badge">secret</span>`}</th><td><code>${each.environment}</code></td><td>${each.type}</td><td>${each.secret ? 'never shown' : each.default === undefined ? f.NONE : html`<code>${String(each.default)}</code>`}</td></tr>`)}</tbody></table></details>`}</div></section>`;
}

function History({ health }) {
  const changes = health.history || [];
  if (!changes.length) return null;
  return html`<ol class="history" aria-label="How it was">${changes.slice(-12).map((change, i) => html`<li key=${i}><${Health} state=${change.state} /><span class="faint"><${When} at=${change.at} /></span><${Text} class="dim">${change.why}</${Text}></li>`)}</ol>`;
}

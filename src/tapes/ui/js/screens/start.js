// The first five minutes: what arrives, counted as it arrives; the lines that make something arrive;
// and sample sessions for whoever wants to look first.
import { html, useEffect, useState } from '../parts/view.js';
import { ask, useAsk, useChangesSoon } from '../parts/api.js';
import { go } from '../parts/route.js';
import { CopyLine, Failed, Segments } from '../parts/pieces.js';
import * as f from '../parts/format.js';

const HERE = 'Type it in the folder in which this server was started.';
const KEY = 'It needs your key, in OPENAI_API_KEY.';
const waysTo = (proxy) => ({
  any: ['Any command', `Runs a command, and leads what it asks of a model, and what it starts asks, through a proxy of its own. ${HERE}`, 'tapes run --mode pass -- python agent.py'],
  claude: ['Claude Code', 'Everything that it does, sub-agents too, becomes one session.', `ANTHROPIC_BASE_URL=${proxy}/anthropic claude`],
  codex: ['Codex', `Codex reads no address from its environment: this gives it one by options, with a key or a login. ${HERE}`, 'tapes run --mode pass -- codex'],
  python: ['Python', `${KEY} Any other client that takes a base URL works too.`, `from openai import OpenAI\n\nclient = OpenAI(base_url="${proxy}/openai/v1")\nanswer = client.responses.create(model="gpt-5-mini", input="Say hello.")\nprint(answer.output_text)`],
  node: ['Node', `As agent.mjs, beside the package openai. ${KEY}`, `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${proxy}/openai/v1" });\nconst answer = await client.responses.create({ model: "gpt-5-mini", input: "Say hello." });\nconsole.log(answer.output_text);`],
  curl: ['curl', KEY, `curl ${proxy}/openai/v1/chat/completions \\\n  -H "authorization: Bearer $OPENAI_API_KEY" -H "content-type: application/json" \\\n  -d '{"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Say hello."}]}'`],
});
const SOURCES = [['wire', 'Proxy'], ['ingest', 'Ingest'], ['otlp', 'OpenTelemetry'], ['transcript', 'Transcripts']];

export function Start({ again, fresh }) {
  const asked = useAsk('/v1/status');
  const [way, setWay] = useState('any');
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  useChangesSoon(asked.reload);
  useEffect(() => {
    const timer = setInterval(asked.reload, 2000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => { if (fresh) again(); }, [fresh]);
  const source = asked.value?.counts?.source || {};
  const has = Object.values(source).some((n) => n > 0);
  const load = () => {
    setBusy(true);
    ask('/v1/admin/seed/demo', { method: 'POST' }).then(
      () => (again ? again() : go(['sessions'])), (failed) => { setProblem(failed); setBusy(false); },
    );
  };
  const ways = waysTo(asked.value?.addresses?.proxy || 'http://127.0.0.1:8080');
  const [, about, text] = ways[way];
  return html`<div class="page start">
    <div><h1>${has ? 'How to capture more' : 'Nothing was captured yet'}</h1><p class="dim">${has ? html`<a href="#/sessions">What was captured</a> is there.` : 'As soon as a call comes through, its session is here.'} This many records have come, and by which way:</p></div>
    <dl class="counters" aria-label="Records that have come, by their way">${SOURCES.map(([name, label]) => html`<div key=${name}><dt>${label}</dt><dd class="tnum">${asked.value ? f.count(source[name] || 0) : f.NONE}</dd></div>`)}</dl>
    ${asked.problem && html`<${Failed} problem=${asked.problem} retry=${asked.reload} />`}
    <section class="panel"><header><h2>Capture a call</h2></header><div class="inside stack">
      <${Segments} label="Client" value=${way} options=${Object.entries(ways).map(([name, [label]]) => [name, label])} onChange=${setWay} />
      <${CopyLine} text=${text} />${about && html`<p class="dim">${about}</p>`}
      <p class="dim">The proxy changes neither the request nor the answer, and keeps no key.</p></div></section>
    <section class="panel"><header><h2>Or look first</h2></header><div class="inside row wrap">
      <p class="grow dim">Six sample sessions: a coding agent with a sub-agent and a failing tool, a session recorded and replayed, an answer that was cut off, several scripts of the world.</p>
      <button class="button first" disabled=${busy} onClick=${load}>${busy ? 'Loading…' : 'Load sample sessions'}</button></div>
      ${problem && html`<div class="inside"><${Failed} problem=${problem} retry=${load} /></div>`}</section></div>`;
}

export const Screen = () => html`<${Start} />`;

// What the calls of models cost, how long they took and what failed, over time: by model, by tool, by
// error. Every number leads to the spans behind it.
import { html, useEffect, useMemo, useState } from '../parts/view.js';
import { ask, query, useAnswered, useAsk, useChanges } from '../parts/api.js';
import { link, set, useRoute } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Filter, RANGES, asked as askedOf, quote } from '../parts/filter.js';
import { Blank, Duration, Failed, Segments, Shades, Text } from '../parts/pieces.js';
import { Chart } from '../parts/chart.js';
import * as f from '../parts/format.js';

const PARTS = 48;
const FINE = 400; // parts of another time, which are put into those of the charts
const MODELS = 12;
const SHOWN = 5; // models with a colour of their own
const TOOLS = 10;
const AT_ONCE = 3;
const HOURS = { '1h': 1, '24h': 24, '7d': 168, '30d': 720 };

// Many answers, some at a time, as they come.
function useAll(addresses, version) {
  const [found, put] = useState({});
  const [times, setTimes] = useState(0);
  const wanted = addresses.join('\n');
  useEffect(() => {
    const stop = new AbortController();
    const left = [...addresses];
    put((now) => Object.fromEntries(addresses.filter((each) => each in now).map((each) => [each, now[each]])));
    const next = async () => {
      for (let address = left.shift(); address && !stop.signal.aborted; address = left.shift()) {
        const name = address;
        try {
          const value = await ask(name, { signal: stop.signal });
          put((now) => ({ ...now, [name]: value }));
        } catch (problem) {
          if (!stop.signal.aborted) put((now) => ({ ...now, [name]: { problem } }));
        }
      }
    };
    for (let i = 0; i < AT_ONCE; i += 1) next();
    return () => stop.abort();
  }, [wanted, version, times]);
  useAnswered(Object.values(found).find((each) => each?.problem)?.problem, () => setTimes((n) => n + 1));
  return found;
}

const spansOf = (q, parts) => query('/v1/histogram/spans', { q, parts });
const barOf = (found) => found?.bars?.[0];

export function Screen() {
  const { params } = useRoute();
  const [version, setVersion] = useState(0);
  const [fresh, setFresh] = useState(false);
  useChanges(() => setFresh(true));
  const again = () => { setFresh(false); setVersion((n) => n + 1); };
  const bounds = askedOf(params);
  const q = (word) => (bounds ? `${word} (${bounds})` : word);
  const all = useAsk(spansOf(q('type:llm'), PARTS), { again: version });
  const isEmpty = all.value && !all.value.bars.length;
  const models = useAsk(query('/v1/facets/model', { limit: MODELS }), { again: version }).value?.items.map(({ value }) => value) || [];
  const tools = useAsk(query('/v1/facets/tool', { limit: TOOLS }), { again: version }).value?.items.map(({ value }) => value) || [];
  const errors = useAsk(query('/v1/facets/error', { limit: 8 }), { again: version });
  const modelQ = (name) => q(`type:llm model:${quote(name)}`);
  const toolQ = (name) => q(`type:tool tool:${quote(name)}`);
  const errorQ = (name) => q(`error:${quote(name)}`);
  const failures = errors.value?.items.map(({ value }) => value) || [];
  const sums = useAll([...models.map((name) => spansOf(modelQ(name), 1)), ...tools.map((name) => spansOf(toolQ(name), 1)), ...failures.map((name) => spansOf(errorQ(name), 1))], version);
  const rowsFor = (names, asQ) => names.map((name) => ({ name, q: asQ(name), bar: barOf(sums[spansOf(asQ(name), 1)]), isThere: spansOf(asQ(name), 1) in sums }));
  const modelRows = rowsFor(models, modelQ).filter(({ bar, isThere }) => bar || !isThere).sort((a, b) => (b.bar?.cost_usd || 0) - (a.bar?.cost_usd || 0) || (b.bar?.rows || 0) - (a.bar?.rows || 0));
  const isKnown = models.length > 0 && modelRows.every(({ isThere }) => isThere);
  const leading = isKnown ? modelRows.slice(0, SHOWN) : [];
  const fine = useAll(leading.map((row) => spansOf(row.q, FINE)), version);
  useKeys([
    { key: 'f', label: 'filter', run: () => document.querySelector('[data-filter]')?.focus() },
    { key: 'n', label: 'show new', hidden: !fresh, run: again },
    { key: 'Escape', shown: 'Esc', label: 'back', hidden: true, run: () => history.back() },
  ]);
  const narrow = (patch) => set(patch, { push: true });
  const onRange = (from, to) => narrow({ from, to, range: '' });
  return html`<div class="page overview"><h1 class="sr">Overview</h1>
    <${Filter} noun="spans" value=${params.q || ''} problem=${all.problem} onChange=${(text) => narrow({ q: text })} />
    <div class="row wrap"><${Segments} label="Time" value=${params.from || params.to ? 'own' : params.range || ''} options=${params.from || params.to ? [...RANGES, ['own', 'Chosen']] : RANGES} onChange=${(range) => range !== 'own' && narrow({ range, from: '', to: '' })} />
      ${(params.from || params.to) && html`<button class="linklike" onClick=${() => narrow({ from: '', to: '' })}>All time again</button>`}</div>
    ${all.problem ? html`<${Failed} problem=${all.problem} retry=${again} query=${all.problem.position == null ? null : q('type:llm')} />`
      : !all.value ? html`<${Shades} rows=${8} />`
      : isEmpty ? html`<${Blank} title="No call of a model"><p>${bounds ? 'None fits this filter in this time.' : 'None was captured yet.'}</p>${bounds ? html`<button class="button first" onClick=${() => narrow({ q: '', range: '', from: '', to: '' })}>Clear the filter</button>` : html`<a class="button first" href="#/start">How to capture one</a>`}</${Blank}>`
      : html`<${Totals} params=${params} version=${version} found=${all.value} />
        <${Charts} found=${all.value} leading=${leading.map((row) => ({ ...row, found: fine[spansOf(row.q, FINE)] }))} onRange=${onRange} />
        <div class="tables"><${Table} title="Models" rows=${modelRows} leading=${leading} cost=${true} all=${all.value} />
          <div class="stack"><${Table} title="Tools" rows=${rowsFor(tools, toolQ).filter(({ bar, isThere }) => bar || !isThere).sort((a, b) => (b.bar?.rows || 0) - (a.bar?.rows || 0))} />
            <${Errors} rows=${rowsFor(failures, errorQ).filter(({ bar, isThere }) => bar || !isThere)} /></div></div>`}
    ${fresh && html`<button class="announce" onClick=${again}>New calls · show</button>`}</div>`;
}

const Count = ({ name, value, title, bad, children }) => html`<div title=${title}><dt>${name}</dt><dd class=${`tnum ${bad ? 'bad' : ''}`}>${value}</dd><dd class="note faint">${children}</dd></div>`;
const sum = (bars, get) => bars.reduce((all, bar) => all + (get(bar) || 0), 0);

// What the server sums up knows a time and no filter.
function Totals({ params: { q, range, from, to }, version, found }) {
  const since = useMemo(() => from || (HOURS[range] ? new Date(Date.now() - HOURS[range] * 3600e3).toISOString() : ''), [range, from, version]);
  const stats = useAsk(q ? '' : query('/v1/stats', { since, until: to }), { again: version }).value;
  const calls = sum(found.bars, (bar) => bar.rows);
  const failed = sum(found.bars, (bar) => bar.failed);
  const known = found.bars.some((bar) => bar.cost_usd != null);
  const cost = sum(found.bars, (bar) => bar.cost_usd);
  const about = found.exact ? '' : 'about ';
  return html`<dl class="counters">
    <${Count} name="Calls of models" value=${`${about}${f.count(calls)}`}>${stats ? `in ${f.plural(stats.session_count, 'session')}` : ''}</${Count}>
    <${Count} name="Failed" value=${f.count(failed)} bad=${failed > 0}>${f.percent(failed, calls)}</${Count}>
    <${Count} name="Cost" value=${known ? `${about}${f.money(cost)}` : f.NONE} title=${known ? f.exactMoney(cost) : 'no cost is known'}>${stats?.unpriced_calls ? `${f.plural(stats.unpriced_calls, 'call')} without a price not in it` : ''}</${Count}>
    ${stats && html`<${Count} name="Not spent" value=${f.money(stats.saved_cost)} title=${f.exactMoney(stats.saved_cost)}>thanks to tapes</${Count}>
      <${Count} name="Tokens" value=${`${f.brief(stats.input_tokens)} / ${f.brief(stats.output_tokens)}`} title=${`input ${f.count(stats.input_tokens)}, output ${f.count(stats.output_tokens)}`}>in / out${stats.uncounted_calls ? `; ${f.plural(stats.uncounted_calls, 'call')} did not say` : ''}</${Count}>
      <${Count} name="Tool calls" value=${f.count(stats.tool_calls)}>in ${f.plural(stats.turn_count, 'turn')}</${Count}>`}</dl>`;
}

function Charts({ found, leading, onRange }) {
  const since = Date.parse(found.since);
  const width = found.width_ns / 1e6;
  const into = (bars, get) => {
    const values = Array(PARTS).fill(0);
    for (const bar of bars || []) values[Math.max(0, Math.min(PARTS - 1, Math.floor((Date.parse(bar.at) - since) / width + 0.001)))] += get(bar) || 0;
    return values;
  };
  const rest = (whole, parts) => whole.map((value, i) => { const left = value - parts.reduce((all, part) => all + part[i], 0); return left > 1e-9 ? left : 0; });
  const isThere = leading.length > 0 && leading.every((row) => row.found);
  const byModel = (get) => {
    const whole = into(found.bars, get);
    if (!isThere) return [{ name: 'all models', tone: 's0', values: whole }];
    const mine = leading.map((row, i) => ({ name: row.name, tone: `s${i + 1}`, values: into(row.found.bars, get) }));
    const others = rest(whole, mine.map(({ values }) => values));
    return [...mine, ...(others.some(Boolean) ? [{ name: 'others', tone: 's0', values: others }] : [])].filter(({ values }) => values.some(Boolean));
  };
  const common = { parts: PARTS, since, width, onRange };
  const calls = sum(found.bars, (bar) => bar.rows);
  const failed = sum(found.bars, (bar) => bar.failed);
  const known = found.bars.some((bar) => bar.cost_usd != null);
  const slowest = Math.max(...found.bars.map((bar) => bar.longest_ns || 0));
  const times = (get) => { const values = Array(PARTS).fill(0); for (const bar of found.bars) values[Math.min(PARTS - 1, Math.round((Date.parse(bar.at) - since) / width))] = get(bar) || 0; return values; };
  return html`<div class="charts">
    <${Chart} ...${common} title="Cost by model" total=${known ? f.money(sum(found.bars, (bar) => bar.cost_usd)) : 'no price is known'} series=${byModel((bar) => bar.cost_usd)} format=${f.money} />
    <${Chart} ...${common} title="Calls by model" total=${f.count(calls)} series=${byModel((bar) => bar.rows)} format=${(n) => f.count(Math.round(n))} />
    <${Chart} ...${common} title="How long calls took" total=${slowest ? `at most ${f.duration(slowest)}` : ''} before=${true} series=${[{ name: '95 % within', tone: 'bar-p95', values: times((bar) => bar.p95_ns) }, { name: 'half within', tone: 'bar-p50', values: times((bar) => bar.p50_ns) }]} format=${f.duration} />
    <${Chart} ...${common} title="Failed calls" total=${failed ? `${f.count(failed)} of ${f.count(calls)}` : 'none'} series=${[{ name: 'failed', tone: 'bar-bad', values: into(found.bars, (bar) => bar.failed) }]} format=${(n) => f.count(Math.round(n))} /></div>`;
}

function Table({ title, rows, leading = [], cost = false }) {
  const dearest = Math.max(...rows.map(({ bar }) => bar?.cost_usd || 0), 0);
  const dot = ({ name }) => { const i = leading.findIndex((each) => each.name === name); return html`<i class=${`tonedot s${i + 1}`} aria-hidden="true" />`; };
  return html`<section class="panel"><header><h2>${title}</h2></header>${!rows.length ? html`<p class="inside dim">None in this time.</p>` : html`<table class="plain"><thead><tr><th scope="col">${title.slice(0, -1)}</th><th scope="col" class="num">Calls</th><th scope="col" class="num">Failed</th><th scope="col" class="num">Half within</th><th scope="col" class="num">95 % within</th>${cost && html`<th scope="col" class="num">Cost</th>`}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}><th scope="row"><span class="row">${cost && dot(row)}<a class="cut" href=${link(['spans'], { q: row.q })}><${Text}>${row.name}</${Text}></a></span></th>
      <td class="num">${row.bar ? f.count(row.bar.rows) : '…'}</td><td class=${`num ${row.bar?.failed ? 'bad' : 'faint'}`}>${row.bar ? f.count(row.bar.failed) : ''}</td><td class="num"><${Duration} ns=${row.bar?.p50_ns} /></td><td class="num"><${Duration} ns=${row.bar?.p95_ns} /></td>
      ${cost && html`<td class="num costcell"><span title=${row.bar?.cost_usd == null ? 'no price is known' : f.exactMoney(row.bar.cost_usd)}>${f.money(row.bar?.cost_usd)}</span>${row.bar?.cost_usd > dearest / 50 && html`<i class="costbar" style=${{ width: `${(100 * row.bar.cost_usd) / dearest}%` }} />`}</td>`}</tr>`)}</tbody></table>`}</section>`;
}

const Errors = ({ rows }) => html`<section class="panel"><header><h2>Errors</h2></header>${!rows.length ? html`<p class="inside dim">None in this time.</p>` : html`<table class="plain"><thead><tr><th scope="col">Error</th><th scope="col" class="num">Times</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><th scope="row"><a href=${link(['spans'], { q: row.q })}><${Text}>${row.name}</${Text}></a></th><td class="num bad">${row.bar ? f.count(row.bar.rows) : '…'}</td></tr>`)}</tbody></table>`}</section>`;

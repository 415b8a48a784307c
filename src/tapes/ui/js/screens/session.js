// One session: lanes over a miniature of the whole, turns as cards, and what is selected beside them.
import { html, useEffect, useMemo, useRef, useState } from '../parts/view.js';
import { ask, at as path, query, useAsk, useChanges } from '../parts/api.js';
import { go, link, recall, remember, route, set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Blank, Cost, Dialog, Duration, Failed, Icon, Shades, Stale, State, Text, Tokens, When, copy, save, say } from '../parts/pieces.js';
import { Panes } from '../parts/panes.js';
import { Lanes } from '../parts/lanes.js';
import { Card } from '../parts/cards.js';
import { Detail } from '../parts/detail.js';
import { Fork, callsOf } from '../parts/fork.js';
import { PLAIN_KEY, PlainSwitch } from '../parts/prose.js';
import { Gone } from '../parts/gone.js';
import { Delete, Freeze } from '../parts/many.js';
import { isFault, modelOf, sumOf, whyEnded } from '../parts/model.js';
import * as f from '../parts/format.js';

export function Screen() {
  const { path: [, id], params } = useRoute();
  const asked = useAsk(query(`/v1/${path('sessions', id, 'traces')}`, { payload: 'preview' }));
  const soon = useRef(0);
  useChanges((change) => {
    if (change.session_id !== id) return;
    soon.current ||= setTimeout(() => { soon.current = 0; asked.reload(); }, 100);
  });
  if (asked.problem && (asked.problem.status === 404 || asked.problem.code === 'bad-query')) return html`<${Gone} noun="session" id=${id} />`;
  if (asked.value) return html`<${Whole} key=${id} found=${asked.value} asked=${asked} params=${params} />`;
  if (asked.problem) return html`<div class="page"><${Failed} problem=${asked.problem} retry=${asked.reload} /></div>`;
  return html`<div class="whole"><div class="wholehead"><div class="shade" /></div><${Shades} rows=${12} /></div>`;
}

// All of it, as the API has it: what is shown here is cut, and has more in it than came.
const exported = (id) => ask(`/v1/${path('sessions', id, 'traces')}`).then((found) => save(`${id}.json`, JSON.stringify(found)), (problem) => say(problem.message));

// A lane is called by the agent that is in it: by its name where it has one, else by its id.
function useThreads(spans, byId) {
  return useMemo(() => {
    const threads = new Map();
    for (const span of spans) {
      const id = span.thread_id || '';
      if (!threads.has(id)) threads.set(id, { id, spans: [], label: id ? '' : 'main', unanchored: false, first: null });
      const thread = threads.get(id);
      thread.spans.push(span);
      if (span.kind === 'agent' && id && byId.get(id)?.kind !== 'agent') thread.label = span.agent || (span.name === 'subagent' ? id : span.name);
      if (span.anchor === 'unanchored') thread.unanchored = true;
      if (span.kind === 'llm') thread.first ??= span;
    }
    const list = [...threads.values()].sort((a, b) => (a.id === '' ? -1 : b.id === '' ? 1 : 0));
    for (const thread of list) {
      thread.sum = sumOf(thread.spans);
      const itself = byId.get(thread.id);
      if (itself?.kind === 'agent') thread.label = itself.agent || itself.name;
      thread.label ||= thread.id;
    }
    return list;
  }, [spans]);
}

function Whole({ found, asked, params }) {
  const { session, traces, links } = found;
  const spans = useMemo(() => traces.flatMap((each) => each.spans), [traces]);
  const model = useMemo(() => modelOf(spans), [spans]);
  const { before, clock } = model;
  const threads = useThreads(spans, model.byId);
  const [follow, setFollow] = useState(session.live);
  const memory = `session ${session.id} ${params.turn || ''} ${params.span || ''}`;
  const [most, setMost] = useState(recall(memory)?.most ?? 80);
  const [dialog, setDialog] = useState('');
  const [forking, setForking] = useState(-1);
  const box = useRef(null);
  const wanted = params.turn && !traces.some((each) => each.trace.trace_id === params.turn) ? spans.find((span) => String(span.raw_turn_id) === params.turn)?.trace_id : params.turn;
  const at = Math.max(0, traces.findIndex((each) => each.trace.trace_id === wanted));
  const chosen = model.byId.get(params.span) || spans.find((span) => String(span.raw_turn_id) === params.turn && span.kind === 'llm');
  // What is over is read from its beginning; what is running, from its newest turns. Where somebody reads from
  // those, the ones that come go below: the first that is shown stays.
  const [atEnd] = useState(session.live);
  const begun = useRef('');
  let first = traces.length > most && !wanted && (atEnd || follow) ? traces.length - most : Math.max(0, Math.min(at, traces.length - most));
  const held = follow || wanted || !atEnd ? -1 : traces.findIndex((each) => each.trace.trace_id === begun.current);
  if (held >= 0) first = Math.min(first, held);
  begun.current = traces[first]?.trace.trace_id ?? '';
  const shown = traces.slice(first, wanted || !(atEnd || follow) ? first + Math.max(most, 1) : undefined);
  const bring = (id, smooth) => box.current?.querySelector(`[data-trace="${CSS.escape(id)}"]`)?.scrollIntoView({ block: 'start', behavior: smooth && !matchMedia('(prefers-reduced-motion: reduce)').matches ? 'smooth' : 'auto' });
  const turnTo = (i) => {
    const next = traces[Math.max(0, Math.min(traces.length - 1, i))];
    if (!next) return;
    set({ turn: next.trace.trace_id });
    setFollow(false);
    requestAnimationFrame(() => bring(next.trace.trace_id));
  };
  const choose = (span) => { set({ span: span.span_id, turn: span.trace_id }); };
  // A turn may be long: it is the call or the tool in it that is brought into sight.
  const show = (span) => {
    bring(span.trace_id);
    box.current?.querySelector(`[data-span="${CSS.escape(span.span_id)}"]`)?.scrollIntoView({ block: 'nearest' });
  };
  const chooseAndShow = (span) => { choose(span); requestAnimationFrame(() => show(span)); };
  // Where somebody read when the session was left: which turn was at the top, and how much of it was above.
  const place = useRef(null);
  const left = useRef({});
  left.current = { memory, most };
  const see = () => {
    if (!box.current) return; // what is scrolled at last may be gone
    const { left: x, top, width } = box.current.getBoundingClientRect();
    // Between two cards there is none: a little further down there is.
    const card = [20, 60].map((y) => document.elementFromPoint(x + width / 2, top + y)?.closest('[data-trace]')).find(Boolean);
    if (card) place.current = { id: card.dataset.trace, above: top - card.getBoundingClientRect().top };
  };
  const goBackTo = ({ id, above }) => {
    const card = box.current.querySelector(`[data-trace="${CSS.escape(id)}"]`);
    if (card) box.current.scrollTop += above - (box.current.getBoundingClientRect().top - card.getBoundingClientRect().top);
  };
  // Cards that come into sight are seldom as high as they were thought to be: somewhere is gone to until it stays there,
  // or somebody goes elsewhere.
  const untilItStays = (goThere) => {
    const { current: cards } = box;
    let frame = 0;
    let frames = 30;
    const again = () => {
      goThere();
      frames -= 1;
      if (frames) frame = requestAnimationFrame(again);
    };
    const end = () => {
      cancelAnimationFrame(frame);
      for (const each of ['wheel', 'touchmove', 'pointerdown', 'keydown']) cards.removeEventListener(each, end);
    };
    for (const each of ['wheel', 'touchmove', 'pointerdown', 'keydown']) cards.addEventListener(each, end, { passive: true });
    again();
    return end;
  };
  useEffect(() => {
    const watched = route.watch(see); // who scrolls and goes at once has not been seen to scroll yet
    return () => {
      watched();
      remember(left.current.memory, { place: place.current, most: left.current.most });
    };
  }, []);
  useEffect(() => {
    const before = recall(memory)?.place;
    if (before && !follow) return untilItStays(() => goBackTo(before));
    if (chosen) show(chosen); else if (wanted) bring(wanted);
    return undefined;
  }, []);
  useEffect(() => (follow ? untilItStays(() => { box.current.scrollTop = box.current.scrollHeight; }) : undefined), [follow, found]);
  const errors = useMemo(() => spans.filter(isFault), [model]);
  const nextError = () => {
    if (!errors.length) { say('No errors in this session'); return; }
    const place = chosen ? errors.findIndex((span) => span.span_id === chosen.span_id) : -1;
    chooseAndShow(errors[(place + 1) % errors.length]);
  };
  const fork = (i) => (traces[i] && callsOf(traces[i].spans).length ? setForking(i) : say('No call of this turn was captured'));
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next turn', run: () => turnTo(wanted ? at + 1 : 0) },
    { key: 'k', also: ['ArrowUp'], label: 'turn before', run: () => turnTo(at - 1) },
    { key: 'Enter', label: 'its trace', run: () => traces[at] && go(['trace', traces[at].trace.trace_id], { span: chosen?.trace_id === traces[at].trace.trace_id ? chosen.span_id : '' }) },
    { key: 'e', label: 'next error', run: nextError },
    { key: 'f', label: 'fork from here', run: () => fork(at) },
    { key: 'F', label: 'follow', run: () => setFollow(!follow) },
    PLAIN_KEY,
    { key: 'r', label: 'rename', hidden: true, run: () => setDialog('rename') },
    { key: 'Escape', shown: 'Esc', label: 'back', run: () => (params.span ? set({ span: '' }) : history.length > 1 ? history.back() : go(['sessions'])) },
  ]);
  const change = (body, said) => ask(`/v1/${path('sessions', session.id)}`, { method: 'PATCH', body }).then(() => { asked.reload(); setDialog(''); say(said); }, (problem) => say(problem.message));
  const whole = useMemo(() => sumOf(spans), [spans]);
  useTitle(found.session.display_title);
  const own = threads.find((each) => each.id === '')?.sum || whole;
  const { rollup } = session;
  const why = useMemo(() => whyEnded(rollup, spans), [found]);
  const turnsPane = html`<div class="sessionleft"><${Lanes} ...${{ model, clock, threads }} turns=${model.roots.map((span) => ({ id: span.span_id, begin: span.begin }))} chosen=${chosen?.span_id} onChoose=${chooseAndShow} />
    <div class="cards" ref=${box} tabindex="0" role="feed" aria-label="Turns" onScroll=${see} onWheel=${() => follow && setFollow(false)} onTouchMove=${() => follow && setFollow(false)} onPointerDown=${(event) => follow && event.target === box.current && setFollow(false)} onKeyDown=${(event) => follow && ['PageUp', 'PageDown', 'Home'].includes(event.key) && setFollow(false)}>
      ${first > 0 && html`<p class="rest"><span class="dim">${f.count(shown.length)} of ${f.plural(traces.length, 'turn')}; ${f.count(first)} earlier</span><button class="button" onClick=${() => setMost(most + 200)}>Show earlier turns</button></p>`}
      ${!traces.length && html`<${Blank} title="No turn yet"><p>The session is known, and none of its calls could be read so far.</p></${Blank}>`}
      ${shown.map(({ trace, spans: mine }, i) => html`<${Card} key=${trace.trace_id} number=${first + i + 1} of=${session.live ? -1 : traces.length} isCurrent=${trace.trace_id === wanted} ...${{ trace, spans: mine, model, before }} chosen=${chosen?.span_id} onChoose=${choose} onFork=${() => fork(first + i)} />`)}
      ${first + shown.length < traces.length && html`<p class="rest"><span class="dim">${f.count(traces.length - first - shown.length)} later turns</span><button class="button" onClick=${() => setMost(most + 200)}>Show more</button></p>`}
      ${session.live && html`<p class="running" role="status"><${State} live=${true} />${follow ? 'following' : html`<button class="linklike" onClick=${() => setFollow(true)}>follow</button>`}</p>`}</div></div>`;
  const right = chosen ? html`<${Detail} span=${chosen} before=${before.get(chosen.span_id)} links=${links} byId=${model.byId} tab=${params.tab} onTab=${(tab) => set({ tab })} />`
    : html`<${Blank} title="Select a call or a tool"><p>Its text, JSON, bytes, chunks, headers, and what differs from the request before, are shown here.</p>${errors.length > 0 && html`<button class="button" onClick=${nextError}><${Icon} name="error" />${f.plural(errors.length, 'error')}: show the first</button>`}</${Blank}>`;
  return html`<div class="whole">
    <header class="wholehead">
      <nav class="crumbs" aria-label="Where this is"><a href="#/sessions">Sessions</a> / <span>Session</span>${session.parent_session_id && html` · begun by <a href=${link(['session', session.parent_session_id])}>another session</a>`}</nav>
      <div class="row wrap"><h1 class="cut grow"><${Text}>${session.display_title}</${Text}></h1>
        <button class="button plain" aria-pressed=${String(session.pinned)} onClick=${() => change({ pinned: !session.pinned }, session.pinned ? 'No longer pinned' : 'Pinned: exempt from retention')}><${Icon} name="pin" />${session.pinned ? 'Pinned' : 'Pin'}</button>
        <button class="button plain" onClick=${() => setDialog('rename')}>Rename, tag</button>
        <${PlainSwitch} />
        <button class="button" onClick=${() => setDialog('freeze')}><${Icon} name="snow" />Freeze</button>
        <button class="button" onClick=${() => exported(session.id)}><${Icon} name="down2" />Export</button>
        <button class="button" onClick=${() => copy(location.href, 'Link copied')}><${Icon} name="copy" />Link</button>
        <button class="button plain" aria-label="Delete" title="Delete" onClick=${() => setDialog('delete')}><${Icon} name="bin" /></button></div>
      <div class="row wrap totals"><${State} state=${rollup.status} live=${session.live} />${!session.live && why && html`<${Text} class="dim">${why}</${Text}>`}${session.tags.map((tag) => html`<span key=${tag} class="badge">${tag}</span>`)}
        <span><${Text}>${session.agent_name || session.harness_id}</${Text}></span><span><${When} at=${session.started_at} /></span><span title="agent time: idle time is not in it"><${Duration} ns=${rollup.duration_ns} /></span>
        <span>${f.plural(rollup.turn_count, 'turn')}, ${f.plural(rollup.llm_calls, 'call')}${rollup.replayed_calls > 0 && `, ${rollup.replayed_calls} replayed`}</span>
        <span>all <${Tokens} input=${whole.input} cached=${whole.cached} output=${whole.output} /> <${Cost} usd=${rollup.usage.cost_usd} unpriced=${rollup.unpriced_calls} saved=${rollup.usage.saved_cost_usd} replayed=${rollup.replayed_calls} whole /></span>
        ${threads.length > 1 && html`<span>main alone <${Tokens} input=${own.input} cached=${own.cached} output=${own.output} /> <${Cost} usd=${own.cost} unpriced=${own.unpriced} /></span>`}
        ${errors.length > 0 && html`<button class="linklike bad" onClick=${nextError}>${f.plural(errors.length, 'error')}</button>`}
        ${(session.live || follow) && html`<button class="button plain" aria-pressed=${String(follow)} title="Keep the newest turn in sight as it comes (F)" onClick=${() => setFollow(!follow)}>Follow</button>`}</div>
      ${asked.problem && html`<${Stale} problem=${asked.problem} retry=${asked.reload} />`}</header>
    <${Panes} name="session" usual=${62} left=${turnsPane} right=${right} rightLabel="What is selected" />
    ${traces[forking] && html`<${Fork} session=${session} number=${forking + 1} spans=${traces[forking].spans} chosen=${chosen?.span_id} onClose=${() => setForking(-1)} />`}
    ${dialog === 'freeze' && html`<${Freeze} ids=${[session.id]} onClose=${() => setDialog('')} />`}
    ${dialog === 'delete' && html`<${Delete} rows=${[session]} onClose=${() => setDialog('')} onDone=${() => go(['sessions'])} />`}
    ${dialog === 'rename' && html`<${Rename} session=${session} change=${change} onClose=${() => setDialog('')} />`}</div>`;
}

function Rename({ session, change, onClose }) {
  const [were] = useState(session.tags); // what somebody else adds meanwhile stays
  const send = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const tags = given.get('tags').split(/[\s,]+/).filter(Boolean);
    change({ display_name: given.get('name'), add_tags: tags.filter((tag) => !were.includes(tag)), remove_tags: were.filter((tag) => !tags.includes(tag)) }, 'Saved');
  };
  return html`<${Dialog} title="Name and tags" onClose=${onClose}><form class="stack" onSubmit=${send}>
    <label class="stack">Name<input class="field" name="name" maxlength="200" dir="auto" placeholder="empty: as its first prompt" defaultValue=${session.name || session.display_name || session.display_title} autofocus /></label>
    <label class="stack">Tags<input class="field" name="tags" defaultValue=${were.join(' ')} placeholder="regression customer-42" /></label>
    <div class="row"><span class="grow" /><button class="button first">Save</button></div></form></${Dialog}>`;
}

// What a span says, in one line: for rows, where there is no room for more.
const MOST = 160;
const line = (text) => String(text).slice(0, 4 * MOST).replace(/\s+/g, ' ').trim().slice(0, MOST);

// The arguments of a call by the one that says most.
export function gistOfArguments(value) {
  if (value == null) return '';
  if (typeof value !== 'object') return line(value);
  const { command, file_path: file, path, query, pattern, url, description } = value;
  return line(command ?? file ?? path ?? query ?? pattern ?? url ?? description ?? JSON.stringify(value));
}

const WAYS = {
  text: (block) => block.text,
  thinking: (block) => block.thinking,
  tool_use: (block) => `→ ${block.tool_name ?? ''} ${gistOfArguments(block.tool_input)}`,
  tool_result: (block) => (typeof block.tool_output === 'string' ? block.tool_output : JSON.stringify(block.tool_output ?? '')),
};
// The first of these that there is says it: words before what was called, and thoughts last.
const ORDER = ['text', 'tool_use', 'tool_result', 'thinking'];

export function gistOf(blocks) {
  for (const type of ORDER) {
    const block = blocks?.findLast((each) => each.type === type && WAYS[type](each));
    if (block) return line(WAYS[type](block));
  }
  return '';
}

export const askedOf = (span) => (span.kind === 'tool' ? gistOfArguments(span.input?.[0]?.tool_input) : gistOf(span.input));
export const answeredOf = (span) => gistOf(span.output);
// What tells a span from its neighbours: of a tool what it was given, of a call what it answered.
export const gistOfSpan = (span) => (span.kind === 'tool' ? askedOf(span) : answeredOf(span));

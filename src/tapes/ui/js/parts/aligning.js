// Two sessions laid over each other: spans that do the same stand side by side.
//
// The same is what is the same of kind, name, asked model and end, with the same input and output, as
// for `tapes diff`; ids, times and costs differ between any two runs. What is alike by kind and name
// alone is aligned, and differs.
const FREE = new Set(['tool_use_id', 'tool_result_id', 'thinking_signature', 'id']);
const said = (value) => JSON.stringify(value, (name, inner) => (FREE.has(name) ? undefined : inner));

export const sayingOf = (span) => [span.kind, span.name, span.status, span.request_model || span.model, said(span.input), said(span.output)].join('\n');
const shapeOf = (span) => `${span.kind}\n${span.kind === 'llm' ? '' : span.name}`;

const MOST = 2500;

// [[left | null, right | null, 'same' | 'differs' | 'only']]
export function align(left, right) {
  const a = left.slice(0, MOST);
  const b = right.slice(0, MOST);
  // Numbers for texts: each pair is compared, and texts may be long.
  const numbers = new Map();
  const numberOf = (text) => numbers.get(text) ?? numbers.set(text, numbers.size).get(text);
  const [says, saysToo] = [a, b].map((each) => each.map((span) => numberOf(sayingOf(span))));
  const [shapes, shapesToo] = [a, b].map((each) => each.map((span) => numberOf(shapeOf(span))));
  const wide = b.length + 1;
  const best = new Float32Array((a.length + 1) * wide);
  const gain = (i, j) => (says[i] === saysToo[j] ? 2 : shapes[i] === shapesToo[j] ? 1 : -1);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i * wide + j] = Math.max(best[(i + 1) * wide + j + 1] + gain(i, j), best[(i + 1) * wide + j], best[i * wide + j + 1]);
    }
  }
  const rows = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && gain(i, j) > 0 && best[i * wide + j] === best[(i + 1) * wide + j + 1] + gain(i, j)) {
      rows.push([a[i], b[j], says[i] === saysToo[j] ? 'same' : 'differs']);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && best[(i + 1) * wide + j] >= best[i * wide + j + 1])) { rows.push([a[i], null, 'only']); i += 1; } else { rows.push([null, b[j], 'only']); j += 1; }
  }
  return { rows, left_out: Math.max(0, left.length - MOST) + Math.max(0, right.length - MOST) };
}

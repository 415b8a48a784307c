// Elements of what the view library would draw, made at once: no state, nobody listening. The
// library takes such elements over when it comes, and mends whatever differs.
const SVG = 'http://www.w3.org/2000/svg';

export function draw(what, into, space = null) {
  if (what == null || typeof what === 'boolean') return;
  if (Array.isArray(what)) for (const each of what) draw(each, into, space);
  else if (typeof what !== 'object') into.append(String(what));
  else if (typeof what.type === 'function') draw(what.type(what.props), into, space);
  else {
    const within = what.type === 'svg' ? SVG : space;
    const element = within ? document.createElementNS(within, what.type) : document.createElement(what.type);
    for (const name in what.props) give(element, name, what.props[name]);
    draw(what.props.children, element, within);
    into.append(element);
  }
}

function give(element, name, value) {
  if (value == null || value === false || name === 'children' || name.startsWith('on')) return;
  if (name === 'style') for (const each in value) element.style.setProperty(each, value[each]);
  else element.setAttribute(name, value === true ? '' : value);
}

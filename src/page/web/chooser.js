// Small pictures of all heads, to choose one: with room for names if there are few heads, else one line per layer, and
// as many layers side by side as there is room for.
const HEADS_A_LINE = 12;  // without layers
const PANEL_ROOM = 394;     // beside the view
const LINE_NAME_ROOM = 24;
const LINE_GAP = 18;
const USUAL_SIDE = 24;      // pixels of a thumbnail

// A head as a small picture.
function thumbnail(n, side) {
  const level = thumbOf(n) || (pyramidOf(n) && levelFor(n, page.query_count / side, page.key_count / side));
  const canvas = element('canvas', { class: 'thumb', width: side, height: side, 'aria-hidden': 'true' });
  if (level) drawLevel(canvas.getContext('2d'), level, wholeMap(), [0, 0, side, side]);
  return canvas;
}

// Head numbers in lines: [label, [n, …]].
function linesOfHeads() {
  const lines = new Map();
  for (let n = 0; n < heads.length; n++) {
    const { entry, layer } = placeOfHead(n);
    const name = layer < 0 ? String(n - n % HEADS_A_LINE) : report.layers[layer].name;
    const label = (report.batch > 1 ? `${entry}/` : '') + name;
    lines.set(label, [...(lines.get(label) || []), n]);
  }
  return [...lines];
}

function headButton(n, side) {
  const head = heads[n];
  const facts = [`entropy ${exact(head.entropy ?? NaN)}`, `distance ${short(head.distance ?? NaN)}`,
    `first key ${short(100 * (head.first ?? NaN))} %`];
  return element('button', { type: 'button', class: 'head', 'aria-pressed': String(n === state.head), 'data-head': n,
    'aria-label': `${headName(n)}: ${head.name}`, title: [`${headName(n)}: ${head.name}`, ...facts].join('\n'),
    onclick: () => choose({ head: n }) },
  thumbnail(n, side), element('span', { class: 'head-short' }, headLabel(n)),
  element('span', { class: 'head-title' }, headName(n)), element('span', { class: 'soft' }, head.name));
}

// Lines of layers stand side by side as long as their thumbnails are not too small.
function sideOfThumbs(lines) {
  const longest = Math.max(...lines.map(([, line]) => line.length));
  const room = stage.clientWidth - (window.innerWidth > 980 ? PANEL_ROOM : 0) - 6;
  const sideIf = (abreast) => Math.floor(((room - (abreast - 1) * LINE_GAP) / abreast - LINE_NAME_ROOM) / longest) - 3;
  let abreast = 1;
  while (abreast < lines.length && sideIf(abreast + 1) >= USUAL_SIDE) abreast++;
  return Math.max(12, Math.min(56, sideIf(abreast)));
}

function headChooser() {
  const few = heads.length <= FEW_HEADS;
  const lines = few ? [['', [...heads.keys()]]] : linesOfHeads();
  const side = isPrinting() ? 98 : few ? 56 : sideOfThumbs(lines);
  return roving(element('div', { class: few ? 'chooser few' : 'chooser', role: 'group', 'aria-label': 'Heads',
    style: `--side: ${side}px` },
    lines.map(([label, line]) => element('div', { class: 'head-line' },
      label && element('span', { class: 'line-name', 'aria-hidden': 'true' }, label),
      line.map((n) => headButton(n, 2 * side))))));
}

// Scrolls a long list of heads to the chosen one.
function showChosenHead(host) {
  const chosen = host.querySelector('.chooser:not(.few) .head[aria-pressed="true"]');
  if (!chosen) return;
  const list = chosen.closest('.chooser');
  list.scrollTop += chosen.getBoundingClientRect().top - list.getBoundingClientRect().top -
    (list.clientHeight - chosen.offsetHeight) / 2;
}

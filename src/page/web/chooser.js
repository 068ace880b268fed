// Small pictures of all heads, to choose one: with room for names if there are few heads, else one line per layer.
const HEADS_A_LINE = 12;  // without layers

// A head as a small picture.
function thumbnail(n, side) {
  const level = thumbOf(n) || (pyramidOf(n) && levelFor(n, page.query_count / side, page.key_count / side));
  const canvas = element('canvas', { class: 'thumb', width: side, height: side, 'aria-hidden': 'true' });
  if (level) drawLevel(canvas.getContext('2d'), level, [0, page.query_count, 0, page.key_count], [0, 0, side, side]);
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
  thumbnail(n, side), element('span', { class: 'head-title' }, headName(n)), element('span', { class: 'soft' }, head.name));
}

function headChooser() {
  const few = heads.length <= FEW_HEADS;
  const lines = few ? [['', [...heads.keys()]]] : linesOfHeads();
  const widest = Math.max(...lines.map(([, line]) => line.length));
  const side = isPrinting() ? 98 : few ? 56 : Math.max(12, Math.min(28, Math.floor(340 / widest) - 3));
  return roving(element('div', { class: few ? 'chooser few' : 'chooser', role: 'group', 'aria-label': 'Heads',
    style: `--side: ${side}px` },
    lines.map(([label, line]) => element('div', { class: 'head-line' },
      label && element('span', { class: 'line-name', 'aria-hidden': 'true' }, label),
      line.map((n) => headButton(n, 2 * side))))));
}

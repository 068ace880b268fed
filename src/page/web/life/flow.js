// The flow through the layers: the words as they enter, and again after each layer; lines for the weights of one head
// per layer; at the end the model's prediction after each word.
const LEAST_LINE = 0.03;  // weight
const LEAST_FOLLOWED = 0.05;
const LINES_A_ROW = 4;
const HEADING = 44;
const MOST_TALL_ROWS = 28;
const ROOM_FOR_NAME = 130;

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  made.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return made;
}

const measuring = element('canvas').getContext('2d');
// Bold, as the chosen word is, so that each word fits when it is chosen.
const FLOW_FONT = '650 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
function cutTo(text, room) {
  measuring.font = FLOW_FONT;
  const letters = [...text];
  if (measuring.measureText(text).width <= room) return text;
  while (letters.length > 1 && measuring.measureText(letters.join('') + '…').width > room) letters.pop();
  return letters.join('') + '…';
}

const shownWeights = (layer) => now.found.layers[layer].attention.heads[state.shown[layer]].weights;

const shownIsOff = (layer) => state.off.has(headLabel(layer, state.shown[layer]));

// The heaviest keys of a row: [[key, weight]].
function heaviest(layer, row, count = LINES_A_ROW) {
  return Array.from(rowOf(shownWeights(layer), row), (weight, key) => [key, weight])
    .filter(([, weight]) => weight >= LEAST_LINE).sort((a, b) => b[1] - a[1]).slice(0, count);
}

// Traces back from a place after layer `top` the lines that contribute most to it, as "layer row key".
function followedLines(top, row) {
  const lines = new Set();
  let reached = new Map([[row, 1]]);
  for (let layer = top; layer >= 0; layer--) {
    const before = new Map();
    for (const [place, share] of reached)
      for (const [key, weight] of heaviest(layer, place)) {
        if (share * weight < LEAST_FOLLOWED) continue;
        lines.add(`${layer} ${place} ${key}`);
        before.set(key, Math.max(before.get(key) || 0, share * weight));
      }
    reached = before;
  }
  return lines;
}

// The positions of the columns for a width in pixels.
function flowPlan(width) {
  const narrow = width < 620;
  measuring.font = FLOW_FONT;
  const longest = Math.max(...now.labels.map((label) => measuring.measureText(label).width), 30);
  const word = Math.min(narrow ? 54 : 110, longest + 12);
  const least = narrow ? 12 : 46;  // pixels between columns
  const end = narrow ? within(width - word * (page.layers + 1) - least * page.layers, 88, 112) : 210;
  const gap = Math.max(least, Math.min(260, (width - word * (page.layers + 1) - end) / page.layers));
  const height = now.labels.length > MOST_TALL_ROWS ? 17 : narrow ? 22 : 25;
  const left = (column) => column * (word + gap);
  return { narrow, word, end, gap, height, left, width: left(page.layers) + word + end,
    y: (row) => HEADING + (row + 0.5) * height };
}

function flowLine(plan, layer, row, [key, weight], followed) {
  const from = plan.left(layer) + plan.word;
  const to = plan.left(layer + 1);
  const middle = (from + to) / 2;
  return svg('path', { class: `line${followed ? ' followed' : ''}${shownIsOff(layer) ? ' off' : ''}`, 'data-line': `${layer} ${row} ${key}`,
    d: `M${from} ${plan.y(key)} C${middle} ${plan.y(key)} ${middle} ${plan.y(row)} ${to - 2} ${plan.y(row)}`,
    'stroke-width': (followed ? 1.5 : 0.8) + (followed ? 3 : 1.4) * weight,
    'stroke-opacity': Math.max(followed ? 0.5 : 0.12, weight * (followed ? 1 : 0.5)) },
  svg('title', {}, `${isolated(now.labels[row])} → ${isolated(now.labels[key])}: ${exact(weight)}`));
}

function flowLines(plan, shown) {
  const followed = followedLines(shown.top, now.row);
  const faint = [];
  const strong = [];
  for (const layer of layers.filter((one) => shown.layers.includes(one)))
    for (let row = 0; row < now.labels.length; row++) {
      const keys = heaviest(layer, row);
      for (const line of keys) {
        const isFollowed = !shownIsOff(layer) && followed.has(`${layer} ${row} ${line[0]}`);
        (isFollowed ? strong : faint).push(flowLine(plan, layer, row, line, isFollowed));
      }
    }
  return [faint, strong];
}

function flowWords(plan, column) {
  return now.labels.map((label, row) => svg('text', { class: row === now.row ? 'flow-word chosen' : 'flow-word',
    x: plan.left(column) + (column === 0 ? plan.word - 6 : 6), y: plan.y(row) + 4.5, 'text-anchor': column === 0 ? 'end'
      : 'start' },
  cutTo(label, plan.word - 8)));
}

// The prediction after each word, with its probability.
function flowEnd(plan, row) {
  const x = plan.left(page.layers) + plan.word + 4;
  const group = (kind, ...parts) => svg('g', { class: `flow-end${kind}${row === now.row ? ' chosen' : ''}`, 'data-after': row }, parts);
  const written = (words, more) => svg('text', { y: plan.y(row) + 4.5, ...more }, words);
  if (isNew(row)) return group(' new', written(plan.narrow ? 'new word' : NEW_WORD, { x: x + 5 }),
    svg('title', {}, `after ${now.labels[row]}: ${NEW_WORD}`));
  const [{ id, probability }] = expectedAfter(now.found, row, state.answer);
  const share = percent(probability);
  return group('',
    svg('rect', { x, y: plan.y(row) - plan.height / 2 + 3, width: (plan.end - 8) * probability, height: plan.height - 6, rx: 3 }),
    written(cutTo(textOf(id, now), plan.end - 70), { x: x + 5 }),
    written(share, { class: 'share', x: x + plan.end - 12, 'text-anchor': 'end' }),
    svg('title', {}, `after ${now.labels[row]}: ${textOf(id, now)} ${share}`));
}

function flowHeadings(plan) {
  return [svg('text', { class: 'flow-heading', x: plan.word - 6, y: HEADING - 10, 'text-anchor': 'end' }, 'reads'), layers.map((layer) => {
    const middle = plan.left(layer) + plan.word + plan.gap / 2;
    const head = state.shown[layer];
    const label = headLabel(layer, head);
    const off = state.off.has(label) ? ', off' : '';
    return [svg('text', { class: 'flow-head', x: middle, y: 14, 'text-anchor': 'middle' }, (plan.gap < ROOM_FOR_NAME ? label : inWords(label)) + off),
      !plan.narrow && svg('text', { class: 'flow-heading', x: middle, y: 30, 'text-anchor': 'middle' },
        cutTo(headName(layer, head), plan.gap))];
  }), svg('text', { class: 'flow-heading', x: plan.left(page.layers) + plan.word + 8, y: HEADING - 10 }, 'expects')];
}

function flowRows(plan) {
  return now.labels.map((_, row) => svg('rect', { class: row === now.row ? 'flow-row chosen' : 'flow-row', x: 0,
    y: plan.y(row) - plan.height / 2, width: plan.width, height: plan.height, 'data-row': row }));
}

// shown: {layers whose lines are drawn, top: the layer after which the traced lines end}.
function showFlow(host, shown) {
  if (!now.found) return host.replaceChildren();
  const plan = flowPlan(host.clientWidth);
  const height = plan.y(now.labels.length) - plan.height / 2 + 4;
  const picture = svg('svg', { width: plan.width, height, viewBox: `0 0 ${plan.width} ${height}`, role: 'img',
    'aria-label': `Lines from each ${unit} to those it attends to, in ${layers.map((layer) =>
      inWords(headLabel(layer, state.shown[layer]))).join(' and ')}` },
  flowRows(plan), flowLines(plan, shown), layers.concat(page.layers).map((column) => flowWords(plan, column)),
  now.labels.map((_, row) => flowEnd(plan, row)), flowHeadings(plan));
  picture.addEventListener('click', (event) => {
    const y = event.clientY - picture.getBoundingClientRect().y - HEADING;
    if (y >= 0) chooseWord(within(Math.floor(y / plan.height), 0, now.labels.length - 1));
  });
  const kept = host.scrollTop;
  host.replaceChildren(picture);
  const below = plan.y(now.row) + plan.height - host.clientHeight;
  host.scrollTop = within(kept, below, plan.y(now.row) - HEADING);
}

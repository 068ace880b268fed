// The flow to the chosen word: lines from the words that it attends to, as wide as their weights. The sum of their
// values, with these weights, is the word's context.
const MOST_FLOWS = 24;
const FLOW_STEP = 24;

function flowsPicture(now, width) {
  const weights = rowOf(drawnMatrix('weights', state.head), now.row);
  const order = Array.from(weights.keys());
  const most = new Set([...order].sort((a, b) => weights[b] - weights[a]).slice(0, MOST_FLOWS));
  const keys = order.filter((key) => most.has(key));
  const height = keys.length * FLOW_STEP + 8;
  const words = Math.min(0.3 * width, widest(keys.map((key) => keyWords[key]), LINE_FONT) + 14);
  const end = Math.min(0.34 * width, 170);
  const told = (key) => (isMasked(weights[key]) ? 'masked' : exact(weights[key]));
  const [from, to, middle] = [words + widest(keys.map(told)) + 18, width - end, height / 2];
  const y = (place) => 4 + (place + 0.5) * FLOW_STEP;
  const text = (x, at, anchor, fill, content, bold = false) => drawn('text', { x, y: at, fill, 'text-anchor': anchor,
    'dominant-baseline': 'central', 'font-weight': bold ? 650 : 400 }, content);
  return drawn('svg', { width, height, role: 'img', 'font-size': 13, 'font-family': FONT.replace(/^\S+ /, ''),
    'aria-label': `What flows to ${queryWords[now.row]}: ${keys.map((key) => `${keyWords[key]} ${told(key)}`).join(', ')}` },
  keys.map((key, place) => {
    const share = Math.max(0, weights[key]);
    const bend = (to - from) / 2;
    const isChosen = key === now.key;
    return [share > 0 && drawn('path', { class: 'flow-line', 'data-key': key, fill: 'none',
      stroke: `var(--${isChosen ? 'key' : 'curve'})`, 'stroke-width': (0.6 + 13 * share).toFixed(2), 'stroke-opacity': (0.25 +
        0.6 * share).toFixed(3),
      d: `M${from} ${y(place)}C${from + bend} ${y(place)} ${to - bend} ${middle} ${to} ${middle}` }),
    text(words - 6, y(place), 'end', isChosen ? 'var(--key)' : 'var(--ink)', fitted(keyWords[key], words - 8, LINE_FONT), isChosen),
    text(from - 8, y(place), 'end', 'var(--soft)', told(key))];
  }), text(to + 8, middle, 'start', 'var(--query)', fitted(queryWords[now.row], end - 10, LINE_FONT), true));
}

const flowsCard = () => element('article', { class: 'card', 'data-step': 'flows' },
  element('header', {}, element('h3', {}, 'What flows to the chosen word')),
  glossed({ class: 'meaning' }, 'Each word hands over its value, scaled by its weight; the sum is the context.'),
  element('div', { class: 'flows' }));

function paintFlows(host, now) {
  const width = host.clientWidth;
  if (width > 0) host.replaceChildren(flowsPicture(now, width));
}

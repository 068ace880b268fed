// The chosen head at the chosen word, step by step, with all numbers.
const MOST_TABLED = 14;  // words of a map up to which a table shows its numbers
const MOST_KEYS = 14;  // up to which the table of keys shows all
const SHOWN_KEYS = 10;  // the heaviest of more

function weightsTable(weights) {
  const all = inks();
  const cell = (row, key) => {
    const weight = at(weights, row, key);
    if (state.causal && key > row) return element('td', { class: 'masked', 'aria-label': 'masked' });
    const colour = colourOf(weight, all);
    return element('td', { style: `background: ${css(colour)}; color: ${inkOn(colour)}`, title: exact(weight),
      'data-weight': exact(weight) }, weight < 0.005 ? '' : tiny(weight));
  };
  return element('table', { class: 'weights' },
    element('thead', {}, element('tr', {}, element('td'), now.labels.map((label) => element('th', { scope: 'col' },
      element('span', {}, label))))),
    element('tbody', {}, now.labels.map((label, row) => element('tr', { class: row === now.row ? 'chosen' : '', onclick: () =>
      chooseWord(row) },
      element('th', { scope: 'row' }, label), now.labels.map((_, key) => cell(row, key))))));
}

function weightsMap(weights) {
  if (weights.rows <= MOST_TABLED) return weightsTable(weights);
  const canvas = element('canvas', { class: 'weights-map', role: 'img', 'aria-label': `Weights of ${weights.rows} rows and ` +
    `keys; the table next to it has the chosen row`,
    onclick: (event) => {
      const box = canvas.getBoundingClientRect();
      chooseWord(within(Math.floor(((event.clientY - box.top) / box.height) * weights.rows), 0, weights.rows - 1));
    } });
  paintMatrix(canvas, weights, 1, (row, key) => state.causal && key > row);
  return canvas;
}

function keysTable(layer, head) {
  const { key: keys, heads } = now.found.layers[layer].attention;
  const d = page.model_dim / page.heads;
  const { scores, weights } = heads[head];
  const part = (key) => rowOf(keys, key).subarray(head * d, (head + 1) * d);
  const largest = largestOf(keys.values);
  const keyStrip = (key) => {
    const canvas = element('canvas', { class: 'key-cells', 'aria-hidden': 'true' });
    paintMatrix(canvas, { rows: 1, columns: d, values: part(key) }, largest);
    return element('td', { class: 'cells' }, canvas);
  };
  const line = (key) => {
    const masked = state.causal && key > now.row;
    const weight = at(weights, now.row, key);
    return element('tr', { class: masked ? 'masked' : '', 'data-key': key }, element('th', { scope: 'row' }, now.labels[key]),
      keyStrip(key),
      element('td', {}, exact(at(scores, now.row, key))),
      element('td', {}, masked ? '−∞' : exact(at(scores, now.row, key) / Math.sqrt(d) / state.temperature)),
      element('td', { class: 'weight' }, exact(weight)),
      element('td', { class: 'bar-cell' }, masked ? 'masked' : element('span', { class: 'share-bar',
        style: `--share: ${weight}` })));
  };
  const heading = (text, kind) => element('th', { scope: 'col', class: kind }, formula(text));
  const table = (chosen) => element('table', { class: 'keys' }, element('thead', {}, element('tr', {}, element('th', {
    scope: 'col' }, unit), heading('k_j', 'cells'), heading('q · k_j'), heading(state.temperature === 1 ? '/ √d' : '/ √d T'), element('th', { scope: 'col' }, 'weight'),
      element('td'))),
  element('tbody', {}, chosen.map(line)));
  const all = now.labels.map((_, key) => key);
  if (all.length <= MOST_KEYS) return table(all);
  const order = [...all].sort((a, b) => at(weights, now.row, b) - at(weights, now.row, a) || a - b);
  const [most, rest] = [order.slice(0, SHOWN_KEYS), order.slice(SHOWN_KEYS)].map((keys) => keys.sort((a, b) => a - b));
  const together = rest.reduce((sum, key) => sum + at(weights, now.row, key), 0);
  const others = element('details', { open: restIsOpen, ontoggle: () => { restIsOpen = others.open; } }, element('summary', {},
    `${rest.length} other ${unit}s, together ${exact(together)}`), table(rest));
  return [table(most), others];
}
let restIsOpen = false;

// The head's contribution to the residual stream at a place: its columns of the output projection times its context.
function handedOver(layer, head, place) {
  const weight = tensor(`blocks.${layer}.attention.out_proj.weight`).values;
  const context = rowOf(now.found.layers[layer].attention.heads[head].context, place);
  const d = context.length;
  return Float64Array.from({ length: page.model_dim }, (_, out) =>
    context.reduce((sum, value, i) => sum + weight[out * page.model_dim + head * d + i] * value, 0));
}

function logitsTable() {
  const logits = rowOf(now.found.logits, now.row);
  return element('table', { class: 'keys' }, element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'next'),
    element('th', { scope: 'col' }, 'logit'), element('th', { scope: 'col' }, 'softmax'))),
  element('tbody', {}, expectedAfter(now.found, now.row, state.answer).slice(0, 5).map(({ id, probability }) =>
    element('tr', {}, element('th', { scope: 'row' }, textOf(id, now)), element('td', {}, exact(logits[id])), element('td', {},
      exact(probability))))));
}

function walkSteps(layer, head) {
  const { embedded } = now.found;
  const block = now.found.layers[layer];
  const d = page.model_dim / page.heads;
  const row = (matrix) => rowOf(matrix, now.row);
  const word = () => element('b', { class: 'query' }, now.labels[now.row]);
  const query = row(block.attention.query).subarray(head * d, (head + 1) * d);
  return [
    [[`The ${unit} becomes a vector: `, word(), `, ${isSymbols ? 'symbol' : 'number'} ${now.ids[now.row]}, has a row ` +
      `of the table of embeddings, place ${now.row} one of positions. Their sum enters the residual stream.`],
      strip('embedding', row(embedded.token)), strip('position', row(embedded.position)), strip('sum', row(embedded.sum))],
    layer > 0 && [[layer > 1 ? `Layers 0 to ${layer - 1} have added to it.` : 'Layer 0 has added to it.'], strip('x',
      row(block.x))],
    [['A norm sets its mean to 0 and its size to √D, with a learned gain and shift.'], strip('n', row(block.norm))],
    [['The head makes a query from it, ', formula('q = W_q n + b'), `: what `, word(), ' looks for.'], strip('q', query)],
    [['Every place has a key, made in the same way. The dot product tells how well it fits. Division by ', formula('√d'),
      ` = ${exact(Math.sqrt(d)).replace(/\.0+$/, '')} keeps it at the size of its factors; the softmax turns the ` +
        `scores into shares of 1.`],
        keysTable(layer, head)],
    [['The values of these places, mixed by the weights: ', formula('z = Σ w v'), state.off.has(headLabel(layer, head))
      ? '. The head is off and adds nothing.' : '.'],
      strip('z', row(block.attention.heads[head].context))],
    [['The output projection turns it into what this head adds to the stream.'], strip('added', handedOver(layer, head, now.row))],
    !page.attention_only && [['An MLP adds its part, place by place.'], strip('MLP', row(block.mlp))],
    [[`All heads of layer ${layer} together: the stream after it.`], strip('x', row(block.output))],
    [['After the last layer, a final norm and the unembedding give each possible next ' + unit +
      ' a logit; the softmax turns them into probabilities.', isNew(now.row) && ' After a new word they mean nothing: there ' +
      'is nothing to copy yet.'],
      strip('n', row(now.found.norm)), logitsTable()],
  ].filter(Boolean).map(([text, ...shown]) => element('li', {}, element('p', {}, text), shown));
}

function showWalk(host) {
  if (!now.found) return host.replaceChildren();
  const { layer } = state;
  const head = state.shown[layer];
  const { weights } = now.found.layers[layer].attention.heads[head];
  host.replaceChildren(element('div', { class: 'walk-map' },
    element('h2', {}, `Layer ${layer}, head ${head} `, element('span', { class: 'soft' }, headName(layer, head))),
    element('p', { class: 'soft' }, 'Each row is a ' + unit + ' that asks; its weights add up to 1. Empty cells are below 0.005.'),
    element('div', { class: 'scrolled' }, weightsMap(weights)), whyPart(layer, head)),
  element('div', { class: 'walk-steps' },
    element('h2', {}, 'Step by step at ', element('b', { class: 'query' }, tokenInText(now.row))), element('ol', {},
      walkSteps(layer, head))));
}

// All heads, layer by layer: each head's map and switch, and the prediction without it.
const cards = new Map();  // "layer.head" -> {card, canvas, mark, pick, onOff, without}

function headCard(layer, head) {
  const name = headLabel(layer, head);
  const canvas = element('canvas', { class: 'head-map', 'aria-hidden': 'true' });
  const mark = element('span', { class: 'head-row' });
  const pick = element('button', { type: 'button', class: 'head-pick', 'aria-pressed': 'false', onclick: () => showHead(layer,
    head) },
    element('span', { class: 'head-frame' }, canvas, mark),
    element('span', { class: 'head-caption' }, name, element('span', { class: 'soft' }, headName(layer, head))));
  const onOff = element('input', { type: 'checkbox', role: 'switch', 'aria-label': inWords(name), onchange: () =>
    switchHeads([name]) });
  const without = element('p', { class: 'without' });
  const card = element('article', { class: 'head-card', 'data-head': name }, pick,
    element('label', { class: 'switch' }, onOff, element('span', {}, 'on')), without);
  cards.set(name, { card, canvas, mark, pick, onOff, without });
  return card;
}

const namesOfLayer = (layer) => headsOf.map((head) => headLabel(layer, head));
const buildHeads = () => layers.map((layer) => element('section', { class: 'layer' },
  element('h3', {}, `Layer ${layer}`, element('button', { type: 'button', class: 'plain', 'data-layer': layer,
    onclick: () => switchHeads(namesOfLayer(layer)) })),
  element('div', { class: 'layer-heads' }, headsOf.map((head) => headCard(layer, head)))));

function showHeads() {
  for (const layer of layers) {
    document.querySelector(`[data-layer="${layer}"]`).textContent = areOff(namesOfLayer(layer)) ? 'switch all on'
      : 'switch all off';
    for (const head of headsOf) {
      const { card, canvas, mark, pick, onOff } = cards.get(`${layer}.${head}`);
      const isOff = state.off.has(`${layer}.${head}`);
      card.classList.toggle('off', isOff);
      onOff.checked = !isOff;
      onOff.nextSibling.textContent = isOff ? 'off' : 'on';
      pick.setAttribute('aria-pressed', String(state.shown[layer] === head));
      card.classList.toggle('chosen', state.layer === layer && state.shown[layer] === head);
      mark.hidden = !now.found;
      if (!now.found) {
        canvas.width = canvas.width || 1;
        continue;
      }
      const { weights } = now.found.layers[layer].attention.heads[head];
      paintMatrix(canvas, weights, 1, (row, key) => state.causal && key > row);
      mark.style.top = `${(100 * now.row) / weights.rows}%`;
      mark.style.height = `${100 / weights.rows}%`;
    }
  }
}

// The probability of `id` after the chosen word if these heads were switched; none is before `layer`.
function otherwise(names, layer, id) {
  const found = run(now.ids, { ...state, off: switched(names) }, now.found, layer);
  return expectedAfter(found, now.row, state.answer).find((one) => one.id === id).probability;
}

const noWithout = () => [byId('without-all'), ...Array.from(cards.values(), ({ without }) => without)].forEach((one) =>
  one.replaceChildren());

function* showWithout() {
  if (!now.found || isNew(now.row)) return noWithout();
  const [{ id }] = expectedAfter(now.found, now.row, state.answer);
  const share = (name, names, layer) => [` ${cutTo(textOf(id, now), 90)} `, element('output', { 'data-without': name },
    percent(otherwise(names, layer, id)))];
  byId('without-all').replaceChildren(`If all ${everyHead.length} are ${areOff(everyHead) ? 'on' : 'off'}:`,
    ...share('all', everyHead, 0));
  yield;
  for (const [name, { without }] of cards) {
    without.replaceChildren(`if ${state.off.has(name) ? 'on' : 'off'}:`, ...share(name, [name], Number(name.split('.')[0])));
    yield;
  }
}

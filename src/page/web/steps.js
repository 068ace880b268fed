// The steps of the computation of a sentence, in order, from its words to the layer's output. A place under the pointer
// is highlighted in every step.
const FIT = ['scores', 'scaled', 'masked'];
const sections = () => (isStory() ? storySections() : [
  ['Words become vectors', ['embeddings', 'context_embeddings']],
  ['What each word looks for, is found by, and hands over', ['query', 'key', 'value']],
  // The weights of several heads have a row of their own, side by side.
  ...(headCount() > 1 ? [['How well they fit', FIT], ['Who attends to whom', ['weights']]]
    : [['How well they fit, and who attends to whom', [...FIT, 'weights']]]),
  ['What each word becomes', ['context', 'merged', 'output']],
]);
const UNITS = { weights: 'share of a row', scores: 'dot product', scaled: 'scaled score', masked: 'scaled score' };

const steps = Object.fromEntries(page.steps.map((step) => [step.name, step]));
const stepTensor = (name) => tensor('step-' + name);
const stepMatrix = (name, head = state.head) => {
  const whole = stepTensor(name);
  const heads = whole.shape.length > 2 ? whole.shape[0] : 1;
  // With fewer key heads than query heads, each key head serves equally many.
  return matrixOf(whole, Math.floor((head * heads) / headCount()));
};
// The same for drawing: masked weights are 0, and are distinguished from other zeros.
function drawnMatrix(name, head) {
  const matrix = stepMatrix(name, head);
  if (name !== 'weights' || !steps.masked) return matrix;
  const masked = stepMatrix('masked', head).values;
  return { ...matrix, values: matrix.values.map((value, i) => (isMasked(masked[i]) ? -Infinity : value)) };
}
const headCount = () => page.heads;

// The meaning of a step's rows and columns: a query word, a key word, or a component of a vector.
const rowAxis = (step) => step.axes.at(-2);
const columnAxis = (step) => step.axes.at(-1);
const partsOf = (name) => (steps[name] ? columnAxis(steps[name]) : '');
const partLabels = (count) => Array.from({ length: count }, (_, c) => String(c));

// The selected component of a step's vectors, or none.
function followedPart(step, { at: part, step: from, }) {
  const axis = columnAxis(step);
  if (axis === 'Lk') return null;
  const wide = partsOf('value');
  const width = stepMatrix('value').columns;
  if (partsOf(from) === axis) return step.name === from || axis !== 'D' ? part : null;
  if (axis === 'H d_v' && partsOf(from) === wide) return state.head * width + part;
  if (axis === wide && partsOf(from) === 'H d_v') return part % width;
  return null;
}

function marksOf(step, now) {
  const row = rowAxis(step) === 'Lk' ? now.key : now.row;
  const rows = rowAxis(step) === 'Lk' ? [[now.key, 'key']] : [[now.row, 'query']];
  if (step.name === 'embeddings' && !page.cross && now.key !== now.row) rows.unshift([now.key, 'key']);
  if (columnAxis(step) === 'Lk')
    return { rows, columns: [[now.key, 'key']], cell: [now.row, now.key], cursor: [now.row, now.key] };
  const part = followedPart(step, now);
  const inside = part !== null && part < stepMatrix(step.name).columns;
  return { rows, columns: [], cell: inside ? [row, part] : null, cursor: [row, inside ? part : 0] };
}

function placeOf(step, row, column, head) {
  const place = { step: step.name, [rowAxis(step) === 'Lk' ? 'key' : 'row']: row };
  place[columnAxis(step) === 'Lk' ? 'key' : 'at'] = column;
  if (head !== undefined && head !== state.head) place.head = head;
  return place;
}

function describeCell(step, row, column, matrix) {
  const value = at(matrix, row, column);
  const words = rowAxis(step) === 'Lk' ? keyWords : queryWords;
  const what = columnAxis(step) === 'Lk' ? pairText(row, column) : `${isolated(words[row])} [${column}]`;
  return `${what}: ${isMasked(value) ? 'masked' : exact(value)}`;
}

// `plain`: a small picture without words; a large one beside it has them.
function gridOf(step, head, scale, plain) {
  const matrix = drawnMatrix(step.name, head);
  const words = columnAxis(step) === 'Lk';
  return new Grid({
    matrix, scale, square: words, plain,
    rowLabels: plain ? null : rowAxis(step) === 'Lk' ? keyWords : queryWords,
    columnLabels: words && !plain ? keyWords : null,
    label: `${step.title}, head ${head}, ${matrix.rows} by ${matrix.columns}; arrow keys move`,
    marks: (now) => marksOf(step, now),
    place: (row, column) => placeOf(step, row, column, head),
    describe: (row, column) => describeCell(step, row, column, matrix),
  });
}

function tableOfStep(step) {
  const matrix = stepMatrix(step.name);
  const columns = columnAxis(step) === 'Lk' ? keyWords : partLabels(matrix.columns);
  return { corner: step.title, rows: rowAxis(step) === 'Lk' ? keyWords : queryWords, columns, matrix };
}

// A common scale for the weights of all heads.
const stepWeightScale = () => weightScale(partLabels(headCount()).map((_, head) => drawnMatrix('weights', head)));

// A step as a card; the card of weights shows all heads side by side.
function stepCard(step, grids) {
  const shape = stepTensor(step.name).shape;
  const all = step.name === 'weights' && headCount() > 1;
  const scale = step.name === 'weights' ? stepWeightScale() : signedScale(stepTensor(step.name).values);
  const heads = all ? partLabels(headCount()).map(Number) : [state.head];
  const plain = (head) => all && head !== state.head && headCount() > 2 && window.innerWidth > SMALL_SCREEN;
  const mine = heads.map((head) => gridOf(step, head, scale, plain(head)));
  const figures = mine.map((grid, i) => {
    const name = `head ${heads[i]}`;
    return element('figure', { class: all && heads[i] === state.head ? 'chosen' : '' }, all &&
      element('button', { class: 'head-name', type: 'button', title: 'Show this head larger, and in all steps',
        onclick: () => choose({ head: heads[i] }) }, name), grid.node);
  });
  mine.forEach((grid, i) => grids.push({ grid, all, chosen: heads[i] === state.head, host: figures[i] }));
  const canvases = () => mine.map((grid) => [grid.base, grid.marks]);
  return element('article', { class: 'card' + (all ? ' wide' : ''), 'data-step': step.name },
    element('header', {}, element('h3', {}, step.title), formula(step.formula),
      element('span', { class: 'shape', title: 'shape: ' + step.axes.join(', ') }, '[' + shape.join(', ') + ']')),
    glossed({ class: 'meaning' }, step.meaning.replaceAll('d_k', 'dₖ')),
    all ? element('div', { class: 'figures many' }, figures[state.head],
      element('div', { class: 'others' }, figures.filter((_, i) => i !== state.head)))
      : element('div', { class: 'figures' }, figures),
    isStory() && matrixFigure(step, grids),
    element('footer', {},
      legend(scale, UNITS[step.name] || 'value', mine.some((grid) => grid.spec.matrix.values.some(isMasked))),
      actions(step.title, canvases, () => tableOfStep(step),
        heads.map((head) => (shape.length > 2 && headCount() > 1 ? 'head ' + head : '')))));
}

// The sentence as buttons that select words, shaded by the weight they get.
function wordStrip() {
  const strip = (name, words, kind) => roving(element('div', { class: 'strip', role: 'group', 'aria-label': name },
    element('span', { class: 'strip-name' }, name),
    words.map((word, i) => element('button', { type: 'button', class: 'word', 'data-index': i, 'data-kind': kind,
      onclick: () => choose({ [kind]: i }),
      onpointerenter: (event) => event.pointerType !== 'touch' && point({ [kind]: i }),
      onpointerleave: () => point(null) }, word))));
  return element('div', { class: 'strips' }, strip('asking', queryWords, 'row'), strip('attended to', keyWords, 'key'));
}

function markStrip(host, now) {
  const weights = stepMatrix('weights');
  const masks = steps.masked && stepMatrix('masked');
  const scale = scaleOfRow(stepsView.scale, drawnMatrix('weights', state.head), now.row);
  for (const word of host.querySelectorAll('.word')) {
    const index = Number(word.dataset.index);
    const chosen = word.dataset.kind === 'row' ? now.row : now.key;
    word.setAttribute('aria-pressed', String(index === chosen));
    if (word.dataset.kind === 'key')
      shadeWord(word, masks && isMasked(at(masks, now.row, index)) ? -Infinity : at(weights, now.row, index), scale);
  }
}

// The chosen head's weights take half of the card, and all other heads share the other half.
const HEAD_GAP = 22;
function widthOfHead(width, chosen) {
  if (width < SMALL_SCREEN - 80) return width;
  const half = (width - HEAD_GAP) / 2;
  const columns = Math.ceil(Math.sqrt(headCount() - 1));
  return Math.floor(chosen ? half : Math.max(110, (half - HEAD_GAP * (columns - 1)) / columns) - 2);
}

const stepsView = {
  name: 'Steps',
  build(host) {
    this.grids = [];
    stepsView.scale = stepWeightScale();
    this.strip = wordStrip();
    this.panel = element('aside', { class: 'panel', 'aria-label': 'The arithmetic' });
    const flow = sections().map(([title, names]) => {
      // With one head, the merged context equals the context, so one picture is enough.
      const shown = names.filter((name) => STORY_CARDS[name] || (steps[name] && !(name === 'merged' && headCount() === 1)));
      if (!shown.length) return null;
      return element('section', { class: 'stage' }, element('h2', {}, title),
        isStory() && element('div', { class: 'story-text' }), element('div', { class: 'cards cards-' + shown.length },
          shown.map((name) => (STORY_CARDS[name]?.() ?? stepCard(steps[name], this.grids)))));
    });
    host.append(this.strip, isStory() ? storyBar() : '', element('div', { class: 'with-panel' },
      element('div', { class: 'flow' }, flow, isStory() && notebooks()), this.panel));
    this.layOut();
  },
  layOut() {
    const widths = this.grids.map(({ host, all, chosen }) => {
      const width = host.closest('.figures').clientWidth - 6;  // without its padding
      return all ? widthOfHead(width, chosen) : width;
    });
    this.grids.forEach(({ grid }, i) => grid.layOut(widths[i]));
    this.refresh();
  },
  refresh() {
    const now = followed();
    for (const { grid } of this.grids) grid.mark(now);
    markStrip(this.strip, now);
    showArithmetic(this.panel, now);
    if (!isStory()) return;
    const flow = this.panel.previousElementSibling;
    tellThoughts(flow, this.panel, now);
    for (const flows of flow.querySelectorAll('.flows')) paintFlows(flows, now);
  },
};

const storyView = { ...stepsView, name: 'Story' };

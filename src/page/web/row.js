// The panel beside maps and text: the numbers of the selected row, and the command for numbers that the page lacks.
const SHOWN_TOP = 10;

function facts(now, link) {
  const list = [['entropy', 'entropy', 'nats'], ['max_weight', 'largest weight', ''], ['distance', 'mean distance', 'positions']]
    .filter(([name]) => tensor(`${name}-${state.head}`))
    .map(([name, title, unit]) => element('div', {}, element('dt', {}, link(title)),
      element('dd', {}, element('output', { 'data-result': name }, written(curveValue(name, state.head, now.row), tensor(`${name}-${state.head}`).rounded)), ' ' + unit)));
  return element('dl', {}, list);
}

const LEAST_TOLD = 0.001;  // smaller weights are told together, as "others"

function topTable(now) {
  const held = topOf(state.head, now.row, state.special ? SHOWN_TOP : Infinity);
  const hidden = held.filter(([key]) => isHidden('key', key));
  const top = held.filter(([key]) => !isHidden('key', key)).slice(0, SHOWN_TOP)
    .filter(([, weight], n) => n === 0 || weight >= LEAST_TOLD || !weightsOf(state.head, now.row));
  const nothing = () => (isRowNaN(state.head, now.row) ? "This row's weights are NaN." : 'This row attends to nothing.');
  if (!held.length) return element('p', { class: 'soft' }, tensor('top_index-' + state.head) || weightsOf(state.head, now.row)
    ? nothing() : '');
  const rows = top.map(([key, weight, rounded]) => element('tr', { class: key === now.key ? 'marked' : '' },
    element('th', { scope: 'row' }, nameOf(keyWords, key)),
    keyWords.length > 0 && element('td', { class: 'soft' }, spelled(key)),
    element('td', { 'data-top': key }, written(weight, rounded)), element('td', {}, bar(weight))));
  const all = weightsOf(state.head, now.row);
  const sumOf = (list) => list.reduce((sum, [, weight]) => sum + weight, 0);
  const together = (name, weight, title) => rows.push(element('tr', { class: 'rest', title }, element('th', { scope: 'row' }, name),
    keyWords.length > 0 && element('td', {}), element('td', {}, exact(weight)), element('td', {}, bar(weight))));
  const others = all ? all.reduce((sum, weight) => sum + Math.max(weight, 0), 0) - sumOf(top) - sumOf(hidden) : 0;
  if (all && others > LEAST_TOLD / 10) together('others', others);
  if (hidden.length) {
    const names = [...new Set(hidden.map(([key]) => key).sort((a, b) => a - b).map((key) => page.key_tokens[key].trim()))].join(' ');
    together(`hidden: ${names}`, sumOf(hidden), names);
  }
  const rest = all ? '' : ` of ${spelled(page.key_count)}; ` +
    (isServed() ? 'the others are loading' : 'the page has no more of this row');
  return [element('table', { class: 'shares' }, element('tbody', {}, rows)),
    rest && element('p', { class: 'soft' }, `The ${top.length === 1 ? 'key' : top.length + ' keys'} attended to most${rest}.`)];
}

// The missing numbers, and the command that computes them.
function elsewhere(now) {
  if (!page.look) return null;
  const of = (report.batch > 1 ? ` --batch ${Math.floor(state.head / report.heads)}` : '') + ` --head ${headLabel(state.head).replace(/^\d+\//, '')}`;
  const near = (place, count) => `${Math.max(0, Math.min(place - 16, count - 32))}:${Math.min(count, Math.max(32, place + 16))}`;
  if (isServed()) return null;
  const asks = weightsOf(state.head, now.row) ? [] : [
    ['Every row and cell, as you look around', `${page.look} --serve`],
    ['More of this row', `${page.look}${of} --row ${now.row} --top-k 20`],
    ...(weightAt(state.head, now.row, now.key) !== null ? [] : [
      ['The weights around here, one by one',
        `${page.look}${of} --tile ${near(now.row, page.query_count)},${near(now.key, page.key_count)}`],
      ['A page that holds them, 256 × 256 of every head',
        `${page.look} --html around.html --tile-at ${now.row},${now.key}`]]),
  ];
  if (!asks.length) return null;
  return element('section', { class: 'elsewhere' }, element('h3', {}, 'Not on this page'), asks.map(([what, command]) => [
    element('p', { class: 'soft' }, what),
    element('div', { class: 'command' }, element('code', {}, command),
      element('button', { type: 'button', class: 'copy', 'aria-label': 'Copy: ' + what, onclick: (event) => copy(command, event.target) },
        'Copy'))]));
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

// The score of each rule, from the look that earned the head its name, else from the first look. (Some rules have no
// first look.) Each leads to what its name means.
function patternChips(head, link) {
  const chips = head.patterns.map(({ name, score, rest }) => {
    const earned = head.names?.find((one) => one.pattern === name);
    const called = earned ?? (head.runner_up?.pattern === name ? head.runner_up : null);  // "2 back" is a fixed offset
    const second = earned ? earned.rest : score === null && rest !== null;
    const value = second ? rest : score;
    return [second, link(name, `${called?.name ?? name} ${value === null ? '–' : value.toFixed(2)}${second ? '*' : ''}`,
      earned ? 'pattern named' : 'pattern')];
  });
  return [element('p', { class: 'patterns' }, chips.map(([, chip]) => chip)),
    chips.some(([second]) => second) && element('p', { class: 'soft' }, '* share of the weight that is not on the ' +
      'first key')].filter(Boolean);
}

// "previous-token 0.94, then local 0.82"
function namesOf(head, link) {
  if (!head.names?.length) return link(head.name);
  const next = head.runner_up && !head.names.some(({ name }) => name === head.runner_up.name) ? [head.runner_up] : [];
  return [...head.names, ...next].map(({ name, score, rest }, n) => [n ? ', then ' : '', link(name), ` ${score.toFixed(2)}` +
    (rest ? ' of the weight that is not on the first key' : '')]);
}

const openInRow = { name: '' };
function showRow(panel, now) {
  const head = heads[state.head];
  const focused = panel.contains(document.activeElement) && [...panel.querySelectorAll('button')].indexOf(document.activeElement);
  const { slot, link } = definitions(openInRow);
  const weight = weightText(state.head, now.row, now.key);
  panel.replaceChildren(
    element('h2', {}, element('b', { class: 'query' }, nameOf(queryWords, now.row)),
      element('span', { class: 'soft' }, `row ${spelled(now.row)}, ${headName(state.head)}`)),
    weight === null ? '' : element('p', { class: 'sum' }, '→ ', element('b', { class: 'key' }, nameOf(keyWords, now.key)), ' ',
      element('output', { 'data-result': 'weight' }, weight)),
    facts(now, link), element('h3', {}, 'Attends most to'), ...[topTable(now)].flat().filter(Boolean),
    element('h3', {}, 'This head'), element('p', { class: 'names' }, namesOf(head, link)), ...patternChips(head, link),
    element('p', { class: 'soft' }, 'What a ', link('score of a name', 'score'), ' or a name means: click it.'), slot, elsewhere(now) || '');
  if (focused !== false) panel.querySelectorAll('button')[focused]?.focus({ preventScroll: true });
}

// Chooses a head whose weights are subtracted from the map.
function minusChooser() {
  const others = heads.map((_, n) => n).filter((n) => n !== state.head);
  const select = element('select', { 'aria-label': 'minus', onchange: (event) => choose({ minus: event.target.value }) },
    element('option', { value: 'none' }, 'no head'),
    page.beside > 0 && element('option', { value: 'same' }, 'the same head beside'), others.map((n) => element('option', { value: n }, report.batch > 1 ? headName(n)
      : headLabel(n))));
  select.value = isDifference(shownMap()) ? state.minus : 'none';
  return element('label', { class: 'choice' }, element('span', { class: 'choice-label' }, 'minus'), select);
}

const openInCard = { name: '' };
// The view with the large map.
const mapView = {
  name: 'Map',
  build(host) {
    this.panel = element('aside', { class: 'panel', 'aria-label': 'The row' });
    const { slot, link } = definitions(openInCard);
    this.picture = new MapPicture(shownMap());
    this.curves = CURVES.filter(([name]) => page.tensors[`${name}-0`]).map((curve) => new Curve(curve));
    this.legend = element('div');
    this.server = element('p', { class: 'server-note soft', role: 'status' });
    this.legends = null;
    this.picture.onseen = () => this.paintCurves();
    const button = (label, text, act) => element('button', { type: 'button', 'aria-label': label, title: label, onclick: act }, text);
    const zoom = roving(element('div', { class: 'choice', role: 'group', 'aria-label': 'Zoom' },
      button('Zoom in', '+', () => this.picture.zoom(0.5)), button('Zoom out', '−', () => this.picture.zoom(2)),
      button('Show all', 'all', () => { this.picture.show(wholeMap()); this.picture.keep(); })));
    const take = actions(`map of ${mapName(this.picture.head)}`, () => [[this.picture.base, this.picture.marks]], () => tableOfMap());
    this.card = element('article', { class: 'card', 'data-step': 'map' },
      element('header', {}, element('h2', {}, mapName(this.picture.head)),
        element('span', { class: 'soft' }, isDifference(this.picture.head) ? 'difference' : link(heads[state.head].name)),
        element('span', { class: 'shape' }, `${spelled(page.query_count)} × ${spelled(page.key_count)}`)), slot, tourBar(),
      element('div', { class: 'figures' }, this.picture.node),
      element('div', { class: 'map-tools' }, zoom, heads.length > 1 && minusChooser(), this.legend), this.server,
      element('div', { class: 'curves' }, this.curves.map((curve) => curve.node)),
      element('footer', {}, report.left_out && !page.served &&
        element('p', { class: 'soft left-out' }, `Left out for the size of this page: ${report.left_out}.`), take));
    host.append(element('div', { class: 'with-panel' }, element('div', { class: 'flow' }, heads.length > 1 && headChooser(), this.card),
      this.panel));
    showChosenHead(host);
    this.layOut();
  },
  layOut() {
    this.picture.layOut(this.picture.node.parentElement.clientWidth - 6);
    for (const curve of this.curves) curve.layOut(this.picture.wide, this.picture.seen);
    this.card.style.setProperty('--curve-left', this.picture.left + 'px');
    this.refresh();
  },
  paintCurves() {
    for (const curve of this.curves) curve.paint(this.picture.seen);
  },
  // One legend for the bins, and one for each visible piece of single weights.
  showLegends() {
    const { level, seen } = this.picture;
    if (!level) return;
    const pieces = tilesOf(this.picture.head).filter((tile) => tile.row_begin < seen[1] && tile.row_end > seen[0] &&
      tile.key_begin < seen[3] && tile.key_end > seen[2]).map((tile) => tile.level);
    const shown = [level, ...pieces];
    if (this.legends?.length === shown.length && shown.every((one, i) => one === this.legends[i])) return;
    this.legends = shown;
    const share = level.signed ? 'difference of shares' : 'share of a row';
    const unit = ({ rowStep, keyStep }) => (rowStep > 1 || keyStep > 1
      ? `${share}, mean of ${Number(rowStep.toPrecision(3))} rows; a bin has ${Number(keyStep.toPrecision(3))} keys`
      : pieces.length && level.rowStep > 1 ? 'share of a row, in the frame' : share);
    this.legend.replaceChildren(...shown.map((one) => legend(shareScale(one), unit(one), imageOf(one).clear)));
  },
  refresh() {
    const now = followed();
    this.picture.mark(now);
    for (const curve of this.curves) curve.mark(now);
    this.showLegends();
    this.server.textContent = serverNote();
    wantRow(state.head, now.row);
    showRow(this.panel, now);
  },
};

function tableOfMap() {
  const { level } = mapView.picture;
  const [r0, k0] = originOf(level);
  const names = (count, step, words, from) => Array.from({ length: count }, (_, n) =>
    step === 1 ? nameOf(words, from + n) : spelled(from + Math.ceil(n * step - 1e-6)));
  return { corner: 'row', rows: names(level.rows, level.rowStep, queryWords, r0),
    columns: names(level.columns, level.keyStep, keyWords, k0),
    matrix: level };
}

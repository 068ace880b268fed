// The view of the weights of one or several heads as lines between words.

// The drawn heads: the chosen one, then additional ones (numbers separated by commas in the address).
function linedHeads() {
  const others = state.with.split(',').filter((text) => /^\d+$/.test(text)).map(Number);
  return [...new Set([state.head, ...others])].filter((n) => n < headCount()).slice(0, MOST_LINED_HEADS);
}
const lineHeads = (list) => choose({ head: list[0], with: list.slice(1).join() });

const swatch = (index) => element('i', { class: 'swatch', style: `background: ${headColour(index)}` });

function headLegend(list, link) {
  return element('ul', { class: 'line-heads', 'aria-label': 'Heads drawn' }, list.map((n, index) =>
    element('li', { 'data-head': n, onpointerenter: () => list.length > 1 && point({ only: n }), onpointerleave: () => point(null) },
      swatch(index), element('span', {}, headName(n)), heads[n] && element('span', { class: 'soft' }, link(heads[n].name)),
      list.length > 1 && element('button', { type: 'button', class: 'copy', 'aria-label': `Remove ${headName(n)}`,
        onfocus: () => point({ only: n }), onblur: () => point(null),
        onclick: () => lineHeads(list.filter((other) => other !== n)) }, '×'))));
}

function headAdder(list) {
  if (headCount() <= list.length || list.length === MOST_LINED_HEADS) return null;
  const rest = Array.from({ length: headCount() }, (_, n) => n).filter((n) => !list.includes(n));
  return element('label', { class: 'choice' }, element('span', { class: 'choice-label' }, 'Add a head'),
    element('select', { 'aria-label': 'Add a head', onchange: (event) => lineHeads([...list, Number(event.target.value)]) },
      element('option', { value: '' }, '…'),
      rest.map((n) => element('option', { value: n }, `${report.batch > 1 ? headName(n) : headLabel(n)} ${heads[n].name}`))));
}

// Sample lines for three weights.
function lineLegend() {
  const samples = [0.05, 0.25, 1];
  return element('span', { class: 'legend' }, samples.flatMap((weight) => [
    drawn('svg', { width: 34, height: 12, 'aria-hidden': 'true' }, drawn('path', { d: 'M0 6H34', stroke: headColour(0),
      'stroke-width': lineWidth(weight), 'stroke-opacity': lineStrength(weight) })), element('span', {}, String(weight))]),
  element('span', { class: 'unit' }, `weight; weights under ${LEAST_LINED} are not drawn`));
}

// The weights of the lit word, heaviest first, as [place, [weight per head]].
const MOST_LISTED = 12;
function weightsOfWord({ side, place }, list, rows) {
  const found = new Map();
  const add = (n, at, weight, rounded) => {
    if (!found.has(at)) found.set(at, list.map(() => null));
    found.get(at)[list.indexOf(n)] = { weight, rounded };
  };
  for (const n of list)
    if (side === 'row') for (const [key, weight, rounded] of topOf(n, place, MOST_LISTED)) add(n, key, weight, rounded);
    else for (let row = rows[0]; row < rows[1]; row++) {
      const held = heldWeight(n, row, place);
      if (held?.weight > 0) add(n, row, held.weight, held.rounded);
    }
  const most = ([, of]) => Math.max(...of.map((held) => held?.weight ?? 0));
  const sorted = [...found].filter(([at]) => !isHidden(side === 'row' ? 'key' : 'row', at)).sort((a, b) => most(b) - most(a) || a[0] - b[0]).slice(0, MOST_LISTED);
  for (const [at, of] of sorted)
    list.forEach((n, i) => { of[i] ??= heldWeight(n, ...(side === 'row' ? [place, at] : [at, place])); });
  return sorted;
}

function weightsTable(lit, list, rows) {
  const words = lit.side === 'row' ? keyWords : queryWords;
  const lines = weightsOfWord(lit, list, rows).map(([at, of]) => element('tr', {},
    element('th', { scope: 'row' }, nameOf(words, at)), words.length > 0 && element('td', { class: 'soft' }, spelled(at)),
    of.map((held) => element('td', { 'data-weight': at }, held === null ? '–' : isMasked(held.weight) ? 'masked'
      : written(held.weight, held.rounded))),
    list.length === 1 && element('td', {}, bar(of[0].weight))));
  const isOfNaN = lit.side === 'row' && list.some((n) => isRowNaN(n, lit.place));
  if (!lines.length) return element('p', { class: 'soft' }, isOfNaN ? 'This row\'s weights are NaN.' : 'No weight above 0.');
  return element('table', { class: 'shares' + (list.length > 1 ? ' shares-many' : '') },
    list.length > 1 && element('thead', {}, element('tr', {}, element('th', {}), words.length > 0 && element('td', {}),
      list.map((n, index) => element('th', { scope: 'col' }, swatch(index), ' ', headLabel(n))))),
    element('tbody', {}, lines));
}

// The heaviest of the drawn lines.
function strongestLines(head, rows, keys) {
  const found = [];
  for (let row = rows[0]; row < rows[1]; row++)
    for (const [key, weight, rounded] of isHidden('row', row) ? [] : drawnStrands(head, row, keys, state.sink)) found.push({ row, key, weight, rounded });
  return found.sort((a, b) => b.weight - a.weight || a.row - b.row).slice(0, 8);
}

const linesView = {
  name: 'Lines',
  selects: ['pin'],
  build(host) {
    this.panel = element('aside', { class: 'panel', 'aria-label': 'The word' });
    this.card = element('article', { class: 'card', 'data-step': 'lines' });
    host.append(element('div', { class: 'with-panel' }, element('div', { class: 'flow' }, this.card), this.panel));
    this.windows = null;
    this.layOut();
  },
  layOut() {
    this.list = linedHeads();
    this.windows = this.windowsNow();
    const [rows, keys] = this.windows;
    this.picture = new LinePicture({ heads: this.list, rows, keys, first: state.sink, label: 'Lines from queries to keys; arrow keys ' +
      'move, Enter keeps a word', pick: (side, place) => this.pick(side, place) });
    const tools = [headAdder(this.list), choice('Lines to the first key', [[true, 'drawn'], [false, 'left out']],
      () => state.sink, (sink) => choose({ sink }))];
    this.figure = element('div', { class: 'figures' }, this.picture.node);
    const { slot, link } = definitions(openInCard);
    this.card.replaceChildren(element('header', {}, headLegend(this.list, link)), slot, element('div', { class: 'map-tools' }, tools.filter(Boolean)),
      this.where(), this.figure, element('footer', {}, lineLegend(), ...this.take()));
    this.picture.layOut(this.card.clientWidth - 30);
    this.refresh();
  },
  // A long text is shown around the chosen word.
  windowsNow() {
    const place = state.pin === 'key' ? state.key : state.row;
    if (page.cross || page.query_count !== page.key_count)
      return [windowAround(state.row, page.query_count), windowAround(state.key, page.key_count)];
    return [windowAround(place, page.query_count), windowAround(place, page.key_count)];
  },
  where() {
    const about = ([from, to], count, kind, what) => to - from < count && element('p', { class: 'soft line-where' },
      `${what} ${spelled(from)} to ${spelled(to - 1)} of ${spelled(count)}, around the chosen one; lines that leave them are not drawn. `,
      [['earlier', from - 1, from > 0], ['later', to, to < count]].filter(([, , there]) => there).map(([name, place]) =>
        element('button', { type: 'button', class: 'copy', 'aria-label': `${what}: ${name}`,
          onclick: () => choose({ [kind]: place, pin: '' }) }, name)));
    const [rows, keys] = this.windows;
    const same = rows.join() === keys.join() && page.query_count === page.key_count;
    const held = report.top_k && weightsOf(this.list[0], state.row) === null;
    return element('div', {}, about(rows, page.query_count, 'row', same ? 'Words' : 'Queries'),
      !same && about(keys, page.key_count, 'key', 'Keys'),
      weightsOf(this.list[0], state.row) === null && element('p', { class: 'soft line-where' }, held
        ? `The page holds the ${report.top_k} keys that each word attends to most: other lines are not on it.`
        : 'The page holds no single weights of a text this long.'));
  },
  pick(side, place) {
    choose({ [side]: place, pin: state.pin === side && state[side] === place ? '' : side });
  },
  take() {
    const name = () => `lines of ${this.list.map(headLabel).join(', ')}`;
    const [slot, table] = [element('div', { class: 'numbers', hidden: true }), () => this.table()];
    const toggle = element('button', { type: 'button', 'aria-expanded': 'false', onclick: () => {
      if (slot.hidden) slot.replaceChildren(tableOf(table()));
      slot.hidden = !slot.hidden;
      toggle.setAttribute('aria-expanded', String(!slot.hidden));
    } }, 'Table');
    const button = (text, act) => element('button', { type: 'button', onclick: act }, text);
    return [element('div', { class: 'actions', role: 'group', 'aria-label': 'Lines: copy or save' }, toggle,
      button('CSV', () => downloadCsv(name(), table())),
      button('SVG', () => download(name() + '.svg', 'image/svg+xml', svgText(this.picture))),
      button('PNG', () => downloadSvgAsPng(name(), this.picture))), slot];
  },
  // The weights of the first head among the words shown.
  table() {
    const [rows, keys] = this.windows;
    const columns = keys[1] - keys[0];
    const values = Array.from({ length: (rows[1] - rows[0]) * columns }, (_, i) =>
      heldWeight(this.list[0], rows[0] + Math.floor(i / columns), keys[0] + i % columns)?.weight ?? null);
    return { corner: 'row', rows: labelled(queryWords, ...rows), columns: labelled(keyWords, ...keys),
      matrix: { rows: rows[1] - rows[0], columns, values } };
  },
  refresh() {
    if (JSON.stringify(this.windowsNow()) !== JSON.stringify(this.windows)) return this.layOut();
    const now = followed();
    const pinned = state.pin in SIDES ? { side: state.pin, place: state[state.pin] } : null;
    const lit = now.side ? { side: now.side, place: now[now.side] } : pinned;
    this.picture.refresh(lit, pinned, now.only ?? null);
    this.showPanel(lit);
    if (lit && document.activeElement?.closest?.('.line-picture')) this.tell(lit);
  },
  tell(lit) {
    const words = lit.side === 'row' ? keyWords : queryWords;
    const list = weightsOfWord(lit, this.list.slice(0, 1), this.windows[0]).slice(0, 3);
    tell(list.map(([place, [held]]) => `${nameOf(words, place)} ${written(held.weight, held.rounded)}`).join(', '));
  },
  showPanel(lit) {
    const [rows, keys] = this.windows;
    if (lit) {
      const [words, kind] = lit.side === 'row' ? [queryWords, 'query'] : [keyWords, 'key'];
      return this.panel.replaceChildren(element('h2', {}, element('b', { class: kind }, nameOf(words, lit.place)),
        element('span', { class: 'soft' }, `${lit.side} ${spelled(lit.place)}`)),
      element('h3', {}, lit.side === 'row' ? 'Attends to' : 'Is attended to by'), weightsTable(lit, this.list, rows));
    }
    this.panel.replaceChildren(element('h2', {}, 'Strongest lines', element('span', { class: 'soft' }, headName(this.list[0]))),
      element('p', { class: 'soft' }, 'Point at a word to see its lines alone; click it to keep it.'),
      element('table', { class: 'shares' }, element('tbody', {}, strongestLines(this.list[0], rows, keys).map(({ row, key, weight, rounded }) =>
        element('tr', {}, element('th', { scope: 'row' }, element('button', { type: 'button', class: 'line-pair',
          onclick: () => choose({ row, key, pin: 'row' }) }, pairText(row, key))),
        element('td', {}, written(weight, rounded)), element('td', {}, bar(weight)))))));
  },
};

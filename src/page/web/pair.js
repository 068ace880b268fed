// Pairs of words: the heads that lead from one to the other, in both directions, and the lines of the best head.
const MOST_RANKED = 8;
const MOST_SUGGESTED = 1000;

// Whether lengths, windows and causal masks let the row of a head see the key, by the runs of rows in report.seen.
function maySee(n, row, key) {
  const runs = report.seen[Math.floor(n / report.heads)];
  if (!runs) return true;
  const [first, begin, beginStep, end, endStep] = runs.findLast(([from]) => from <= row);
  return key >= begin + (row - first) * beginStep && key < end + (row - first) * endStep;
}

// The heads by the weight of a row on a key, as {n, weight, rounded}. If the page lacks the weight, it is at most
// `below`, the least weight that the page holds for the row; such heads come before heads that give 0, and these before
// heads whose row is NaN. Heads whose masks forbid the key are left out.
function rankedPair(row, key) {
  const known = [];
  const unknown = [];
  for (let n = 0; n < headCount(); n++) {
    const held = heldWeight(n, row, key);
    if (held && isMasked(held.weight)) continue;
    if (held) known.push({ n, ...held });
    const [, below = null, rounded] = held === null ? topOf(n, row, Infinity).at(-1) ?? [] : [];
    if (below === 0) known.push({ n, weight: 0, rounded });
    else if (held === null) unknown.push({ n, weight: null, below });
  }
  const above = known.filter(({ weight }) => weight > 0).sort((a, b) => b.weight - a.weight || a.n - b.n);
  return [...above, ...unknown, ...known.filter(({ weight }) => weight <= 0), ...known.filter(({ weight }) => isNaN(weight))];
}

const SAME_WORDS = !page.cross && page.query_count === page.key_count;
const pairWords = (row, key) => [element('b', { class: 'query' }, nameOf(queryWords, row)), ' → ', element('b', { class: 'key' }, nameOf(keyWords, key))];

// The ranking of one direction. `drawn` is the head of this direction whose lines are drawn.
function pairTable(view, { way, row, key, ranked }) {
  const shown = view.all ? ranked : ranked.slice(0, MOST_RANKED);
  const lines = shown.map(({ n, weight, rounded, below }, at) => element('tr', { class: view.drawnNow === `${way}${n}` ? 'marked' : '' },
    element('td', { class: 'soft' }, String(at + 1)),
    element('th', { scope: 'row' }, element('button', { type: 'button', class: 'line-pair', 'aria-label': `Draw ${headName(n)}, ${way}`,
      'aria-pressed': String(view.drawnNow === `${way}${n}`), onclick: () => choose({ head: n, drawn: `${way}${n}` }) }, headLabel(n))),
    element('td', { class: 'soft pair-kind' }, heads[n].name), element('td', { 'data-weight': n }, weight === null
      ? below === null ? 'not on this page' : `at most ${short(below)}` : written(weight, rounded)),
    element('td', {}, weight !== null && bar(weight))));
  return element('section', { class: 'pair-way', 'data-way': way }, element('h2', {}, pairWords(row, key)),
    lines.length ? element('table', { class: 'shares' }, element('tbody', {}, lines))
      : element('p', { class: 'soft' }, `Masked in every head: ${isolated(nameOf(queryWords, row))} cannot attend to ` +
        `${isolated(nameOf(keyWords, key))}.`),
    ranked.length > MOST_RANKED && element('button', { type: 'button', class: 'copy', onclick: () => view.showAll() },
      view.all ? `The first ${MOST_RANKED}` : `All ${spelled(ranked.length)} heads`));
}

const pairView = {
  name: 'Pair',
  selects: ['head', 'drawn'],
  build(host) {
    this.all = false;
    this.note = element('p', { class: 'pair-note', role: 'status' });
    this.inputs = { row: this.input('row', 'From', queryWords, page.query_count),
      key: this.input('key', 'to', keyWords, page.key_count) };
    this.answer = element('p', { class: 'pair-answer' });
    this.lines = element('article', { class: 'card', 'data-step': 'pair' });
    this.ways = element('div', { class: 'pair-ways' });
    const swap = SAME_WORDS && element('button', { type: 'button', class: 'chip', onclick: () =>
      choose({ row: state.key, key: state.row, drawn: '' }) }, 'swap');
    host.append(element('form', { class: 'map-tools pair-form', onsubmit: (event) => event.preventDefault() },
      Object.values(this.inputs).map(({ node }) => node), swap, this.note), this.answer,
    element('div', { class: 'pair-view' }, this.ways, this.lines));
    this.layOut();
  },
  input(kind, label, words, count) {
    const list = `pair-${kind}`;
    const field = element('input', { type: 'text', list, autocomplete: 'off', spellcheck: 'false', 'aria-label': kind === 'row' ? 'From the word' : 'To the word',
      onchange: () => this.take(kind, field.value.trim(), words, count), onfocus: () => field.select() });
    const some = words.slice(0, MOST_SUGGESTED).filter((_, place) => !isHidden(kind, place));
    return { field, node: element('label', { class: 'choice' }, element('span', { class: 'choice-label' }, label), field,
      element('datalist', { id: list }, some.map((word) => element('option', { value: word })))) };
  },
  take(kind, text, words, count) {
    const { place, fault } = placeNamed(text, words, count, state[kind], kind);
    this.note.textContent = fault ?? '';
    if (fault) this.inputs[kind].field.setAttribute('aria-invalid', 'true');
    else choose({ [kind]: place, drawn: '' });
  },
  showAll() {
    this.all = !this.all;
    this.pairNow = null;
    this.refresh();
  },
  layOut() {
    this.pairNow = null;
    this.refresh();
  },
  // Both directions, if queries and keys are the same words.
  rank() {
    const there = { way: 'to', row: state.row, key: state.key, ranked: rankedPair(state.row, state.key) };
    if (!SAME_WORDS || state.row === state.key) return [there];
    return [there, { way: 'back', row: state.key, key: state.row, ranked: rankedPair(state.key, state.row) }];
  },
  refresh() {
    // Choosing a head elsewhere (its menu, or a key) draws that head.
    if (this.pairNow !== null && state.head !== this.headNow && state.drawn === this.drawnState)
      state.drawn = this.drawnNow.replace(/\d+$/, '') + state.head;
    const pair = [state.row, state.key, state.drawn].join();
    if (pair !== this.pairNow) this.show(pair);
    const now = followed();
    const lit = now.side ? { side: now.side, place: now[now.side] } : this.lit;
    this.picture?.refresh(lit, this.lit);
  },
  show(pair) {
    const focused = this.ways.contains(document.activeElement) && document.activeElement.getAttribute('aria-label');
    this.pairNow = pair;
    for (const [kind, words] of [['row', queryWords], ['key', keyWords]]) {
      this.inputs[kind].field.value = nameOf(words, state[kind]);
      this.inputs[kind].field.removeAttribute('aria-invalid');
    }
    const ways = this.rank();
    const chosen = this.chosen(ways);
    this.drawnNow = chosen ? chosen.way.way + chosen.n : '';
    this.drawnState = state.drawn;
    if (chosen && state.head !== chosen.n) {
      state.head = chosen.n;
      showControls();
    }
    this.headNow = state.head;
    this.ways.replaceChildren(...ways.map((way) => pairTable(this, way)));
    this.say(ways[0]);
    this.draw(chosen);
    if (focused) this.ways.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  },
  // The drawn head: the requested one, else the best of the first direction that has any.
  chosen(ways) {
    const [, name, n] = /^(to|back)(\d+)$/.exec(state.drawn) ?? [];
    const asked = ways.find(({ way, ranked }) => way === name && ranked.some((one) => one.n === Number(n)));
    if (asked) return { way: asked, n: Number(n) };
    const first = ways.find(({ ranked }) => ranked.length);
    return first && { way: first, n: first.ranked[0].n };
  },
  say({ row, key, ranked }) {
    const [best] = ranked;
    this.answer.replaceChildren(...(!best ? [...pairWords(row, key), ': masked in every head.']
      : isNaN(best.weight) ? [...pairWords(row, key), ': NaN in every head.']
      : best.weight === 0 ? [...pairWords(row, key), `: 0 ${isNaN(ranked.at(-1).weight) ? 'or NaN ' : ''}in every head.`]
      : best.weight === null ? [...pairWords(row, key), ': the page does not hold this weight of any head; it holds the ',
        `${report.top_k} keys that each word attends to most.`]
        : [...pairWords(row, key), ': most in ', element('b', {}, headName(best.n)), `, ${written(best.weight, best.rounded)}`]));
    if (best) tell(this.answer.textContent);
  },
  draw(chosen) {
    if (!chosen) {
      this.picture = null;
      this.lines.replaceChildren(element('p', { class: 'soft' }, 'No head has a line between these words.'));
      return;
    }
    const { way: { row, key }, n } = chosen;
    const rows = windowAround(row, page.query_count);
    const keys = SAME_WORDS && isWithin(key, rows) ? rows : windowAround(key, page.key_count);
    this.lit = { side: 'row', place: row, to: key };
    this.picture = new LinePicture({ heads: [n], rows, keys, first: true, label: `Lines of ${headName(n)}; arrow keys move, Enter chooses a word`,
      pick: (side, place) => choose({ [side]: place, drawn: '' }) });
    const to = (view, text) => element('button', { type: 'button', onclick: () => choose({ head: n, view, row, key, pin: 'row', with: '' }) }, text);
    const { slot, link } = definitions(openInCard);
    this.lines.replaceChildren(element('header', {}, element('h3', {}, headName(n)), element('span', { class: 'soft' }, link(heads[n].name)),
      element('span', { class: 'choice', role: 'group', 'aria-label': 'Show it' }, to('map', 'Map'), to('lines', 'Lines'))), slot,
    element('p', { class: 'soft line-where' }, 'Click a word on the left to ask what it attends to, on the right to ' +
      'ask what attends to it.'),
    element('div', { class: 'figures' }, this.picture.node), element('footer', {}, lineLegend()));
    this.picture.layOut(this.lines.clientWidth - 30);
  },
};

// All heads at once: rows are layers, columns are heads. Any figure of the summaries ranks them.
const FIGURE_TITLES = { max_weight: 'largest weight', distance: 'mean distance', first: 'weight on the first key',
  self: 'weight on itself', previous: 'weight on the key before', next: 'weight on the key after' };
const NO_FIGURES = new Set(['batch', 'head', 'rows', 'nan_rows', 'choices']);  // positions and counts, not means
const RANKINGS = { down: 'largest first', up: 'smallest first' };

// One format for a figure of all heads: as many decimals as its largest value leaves room for.
function figureText(figure, head) {
  const value = figure.of(head);
  if (!isNumber(value)) return '–';
  figure.decimals ??= [100, 10].filter((size) => heads.every((one) => !(Math.abs(figure.of(one)) >= size))).length;
  return minus(value.toFixed(figure.decimals)) + (figure.star?.(head) ? '*' : '');
}
// Long names break at syllables.
const brokenName = (name) => name.replace('separators', 'separa\u00adtors').replace('duplicate', 'dupli\u00adcate');

// By name: {title, group, of(head) -> number or none, star(head): whether the figure excludes the first key}.
let allFigures = null;
function figuresOfHeads() {
  if (allFigures) return allFigures;
  allFigures = { named: { title: 'score of its name', of: (head) => head.names?.[0]?.score,
    star: (head) => head.names?.[0]?.rest } };
  for (const { name } of heads[0].patterns) {
    const pattern = (head) => head.patterns.find((one) => one.name === name);
    allFigures['score ' + name] = { title: name, group: 'Scores of names', of: (head) => pattern(head)?.score ?? pattern(head)?.rest,
      star: (head) => isNumber(pattern(head)?.rest) && !isNumber(pattern(head).score) };
  }
  for (const name of Object.keys(heads[0]))
    if (!NO_FIGURES.has(name) && heads.some((head) => typeof head[name] === 'number'))
      allFigures[name] = { title: FIGURE_TITLES[name] ?? name.replaceAll('_', ' '), group: 'Means over rows', of: (head) => head[name] };
  return allFigures;
}
const figureChosen = () => figuresOfHeads()[state.figure] ?? figuresOfHeads().named;
const isNumber = (value) => typeof value === 'number';

// The heads of one layer (of one batch entry) as [name, [n, …]].
function layersOfHeads() {
  const rows = new Map();
  heads.forEach((_, n) => {
    const { entry, layer } = placeOfHead(n);
    const name = headName(n).replace(/,? ?head \d+$/, '');
    const key = `${entry} ${layer}`;
    if (!rows.has(key)) rows.set(key, [name, []]);
    rows.get(key)[1].push(n);
  });
  return [...rows.values()];
}

const isShown = (n) => !state.only || heads[n].name === state.only;
// Heads ranked by the figure; those without it come last.
function rankedHeads() {
  const { of } = figureChosen();
  const sign = state.order === 'up' ? 1 : -1;
  const all = heads.map((_, n) => n).filter(isShown);
  if (state.order === 'layers') return all;
  const [having, lacking] = [all.filter((n) => isNumber(of(heads[n]))), all.filter((n) => !isNumber(of(heads[n])))];
  return [...having.sort((a, b) => sign * (of(heads[a]) - of(heads[b])) || a - b), ...lacking];
}

function nameChips() {
  const count = new Map();
  for (const { name } of heads) count.set(name, (count.get(name) || 0) + 1);
  const names = [...count].sort((a, b) => (a[0] === 'mixed') - (b[0] === 'mixed') || b[1] - a[1]);
  return roving(element('div', { class: 'chips', role: 'group', 'aria-label': 'Heads named' }, [['', heads.length], ...names].map(([name, many]) =>
    element('button', { type: 'button', class: 'chip', 'aria-pressed': String(state.only === name), 'data-name': name,
      'aria-label': `Show ${name || 'all heads'}: ${many}`, onclick: () => choose({ only: name }) }, name || 'all', ' ',
    element('span', { class: 'soft' }, String(many))))));
}

function figurePicker() {
  const option = ([name, { title }]) => element('option', { value: name }, title);
  const all = Object.entries(figuresOfHeads());
  const groups = [...new Set(all.map(([, { group }]) => group))];
  const select = element('select', { 'aria-label': 'Figure on each card', onchange: (event) => choose({ figure: event.target.value }) },
    groups.map((group) => {
      const options = all.filter(([, figure]) => figure.group === group).map(option);
      return group ? element('optgroup', { label: group }, options) : options;
    }));
  select.value = figureChosen() === figuresOfHeads().named ? 'named' : state.figure;
  return element('label', { class: 'choice' }, element('span', { class: 'choice-label' }, 'Figure'), select);
}

// Thumbnails are painted when they come near the window, a few per frame.
const PAINT_MS = 10;
class ThumbPainter {
  constructor() {
    this.side = 96;  // pixels of a thumbnail; measuring each one would force a page layout
    this.waiting = new Set();
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) this.waiting.add(target);
      if (!this.frame && this.waiting.size) this.frame = requestAnimationFrame(() => this.work());
    }, { rootMargin: '300px' });
  }

  watch(canvas) { this.observer.observe(canvas); }

  work() {
    this.frame = 0;
    const end = performance.now() + PAINT_MS;
    for (const canvas of this.waiting) {
      this.paint(canvas);
      if (performance.now() > end) break;
    }
    if (this.waiting.size) this.frame = requestAnimationFrame(() => this.work());
  }

  paint(place) {
    this.waiting.delete(place);
    this.observer.unobserve(place);
    place.replaceChildren(pictureOf(Number(place.dataset.thumb), this.side));
  }

  stop() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }
}

// The bins of these rows and keys.
function croppedTo([r0, r1, k0, k1], { rowStep, keyStep }, whole) {
  const [x, y] = [Math.floor(k0 / keyStep), Math.floor(r0 / rowStep)];
  const made = element('canvas', { width: Math.ceil(k1 / keyStep) - x, height: Math.ceil(r1 / rowStep) - y });
  made.getContext('2d').drawImage(whole, -x, -y);
  return made;
}

// A head as a picture with one pixel per bin, for about `side` pixels of the screen. (Composing a thousand canvases
// would take the browser seconds; images are quick.)
function pictureOf(n, side) {
  const dots = side * Math.min(devicePixelRatio || 1, 2);
  const level = (dots <= 128 && thumbOf(n)) || (pyramidOf(n) && levelFor(n, page.query_count / dots, page.key_count / dots)) || thumbOf(n);
  if (!level) return '';
  const image = imageOf(level);
  const seen = wholeMap();
  if (image.seen !== seen.join()) Object.assign(image, { seen: seen.join(), address: croppedTo(seen, level, image.canvas).toDataURL() });
  return element('img', { src: image.address, alt: '', draggable: 'false' });
}

const layersView = {
  name: 'Layers',
  selects: ['head'],
  build(host) {
    this.painter?.stop();
    this.painter = new ThumbPainter();
    this.rows = layersOfHeads();
    this.byLayer = state.order === 'layers' && this.rows.length > 1;
    this.grid = element('div', { class: 'head-grid', role: 'group', 'aria-label': 'Heads; arrow keys move, Enter shows one',
      onpointerleave: () => point(null) }, this.byLayer ? this.matrix() : rankedHeads().map((n) => this.card(n)));
    this.grid.classList.toggle('by-layer', this.byLayer);
    this.side = element('aside', { class: 'showing', 'aria-label': 'The head' });
    const unranked = this.rows.length < 2 ? 'by head' : report?.layers.length ? 'by layer' : 'by entry';
    const order = choice('Order', [['layers', unranked], ...Object.entries(RANKINGS)],
      () => state.order in RANKINGS ? state.order : 'layers', (name) => choose({ order: name }));
    host.append(element('div', { class: 'with-panel layers-view' }, element('div', { class: 'flow' },
      element('div', { class: 'map-tools' }, figurePicker(), order), nameChips(),
      Object.hasOwn(HEAD_GLOSSARY, termOf(state.only)) && element('p', { class: 'definition' }, HEAD_GLOSSARY[termOf(state.only)]), this.grid,
      element('p', { class: 'soft line-where' }, 'Each thumbnail has its own colour scale.' +
        (heads.some((head) => figureChosen().star?.(head)) ? ' * share of the weight that is not on the first ' +
          'key.' : ''))), this.side));
    this.layOut();
  },
  matrix() {
    const columns = Math.max(...this.rows.map(([, list]) => list.length));
    return [element('span', { class: 'head-axis' }, 'head'),
      Array.from({ length: columns }, (_, h) => element('span', { class: 'head-axis', 'aria-hidden': 'true' }, String(h))),
      this.rows.map(([name, list]) => [element('span', { class: 'layer-axis' }, name),
        Array.from({ length: columns }, (_, h) => (h < list.length && isShown(list[h]) ? this.card(list[h])
          : element('span', { class: h < list.length ? 'head-gap' : '' })))])];
  },
  card(n) {
    const { title } = figureChosen();
    const told = figureText(figureChosen(), heads[n]);
    const picture = element('span', { class: 'bins', 'data-thumb': n });
    this.painter.watch(picture);
    return element('button', { type: 'button', class: 'head-card', 'data-head': n, tabindex: -1, 'aria-pressed': 'false',
      'aria-label': `${headName(n)}, ${heads[n].name}, ${title} ${told}`, onclick: () => choose({ head: n }),
      onpointerenter: (event) => event.pointerType !== 'touch' && point({ shown: n }), onfocus: () => point({ shown: n }),
      onblur: () => point(null) }, picture,
    !this.byLayer && element('span', { class: 'head-label' }, report.batch > 1 ? headName(n) : headLabel(n)),
    element('span', { class: 'head-kind' }, brokenName(heads[n].name)), element('span', { class: 'head-figure' }, told));
  },
  layOut() {
    const columns = Math.max(...this.rows.map(([, list]) => list.length));
    this.grid.style.setProperty('--columns', columns);
    const size = this.byLayer ? (this.grid.clientWidth - 52) / columns : 96;
    this.grid.classList.toggle('tight', size < 56);
    this.grid.classList.toggle('tiny', size < 38);
    this.painter.side = size;
    this.drawnHead = null;
    this.refresh();
    if (isPrinting()) this.paintAll();
    if (!this.grid.rest) roving(this.grid, '.head-card');
  },
  cards() { return [...this.grid.querySelectorAll('.head-card')]; },
  refresh() {
    const n = followed().shown ?? state.head;
    const cards = this.cards();
    const chosen = cards.find((card) => Number(card.dataset.head) === state.head);
    for (const card of cards) card.setAttribute('aria-pressed', String(card === chosen));
    const drawnNow = `${n} ${n === state.head}`;
    if (this.drawnHead !== drawnNow) this.showHead(n);
    this.drawnHead = drawnNow;
    this.picture?.mark(followed());
  },
  // The chosen head's map can be pointed at and zoomed. The map of a head under the pointer is only a preview.
  showHead(n) {
    const preview = n !== state.head || innerWidth <= 980;
    this.picture = preview ? null : new MapPicture();
    const figure = element('div', { class: 'figures' }, preview ? element('span', { class: 'bins preview', role: 'img',
      'aria-label': `Map of ${headName(n)}` }) : this.picture.node);
    const to = (view, text) => views()[view] && element('button', { type: 'button', onclick: () => choose({ head: n, view }) }, text);
    const means = Object.entries(figuresOfHeads()).filter(([, { group }]) => group === 'Means over rows');
    const { slot, link } = definitions(openInRow);
    this.side.replaceChildren(
      element('div', { class: 'showing-title' }, element('h2', {}, headName(n), element('span', { class: 'soft' }, link(heads[n].name))),
        element('div', { class: 'choice', role: 'group', 'aria-label': 'Show it' }, to('map', 'Map'), to('lines', 'Lines'), to('pair', 'Pair'))),
      figure, element('div', { class: 'showing-figures' }, element('dl', {}, means.map(([name, of]) =>
        element('div', { class: name === state.figure ? 'on' : '' }, element('dt', {}, link(of.title)),
          element('dd', {}, figureText(of, heads[n]))))),
      ...patternChips(heads[n], link), slot));
    if (this.picture) this.picture.layOut(figure.clientWidth - 6);
    else figure.firstChild.append(pictureOf(n, Math.max(120, figure.clientWidth)));
  },
  paintAll() { for (const card of this.cards()) if (!card.firstChild.hasChildNodes()) this.painter.paint(card.firstChild); },
};

// The weights of some words as lines, from the attending words on the left to the attended words on the right. It is an
// SVG picture, so that it prints and can be saved.
const MOST_LINED_WORDS = 60;
const LEAST_LINED = 0.01;  // smaller weights are not drawn
const LEAST_WRITTEN = 0.0005;  // smaller ones would be written as 0.000
const MOST_LINED_HEADS = 5;  // the number of colours --head-0, --head-1, … in views.css

// Words [from, to) around a place. Windows of a long text begin at multiples of half their size, so small moves of the
// place do not shift them.
function windowAround(place, count) {
  if (count <= MOST_LINED_WORDS) return [0, count];
  const half = MOST_LINED_WORDS / 2;
  const from = Math.max(0, Math.min(count - MOST_LINED_WORDS, half * Math.round(place / half - 1)));
  return [from, from + MOST_LINED_WORDS];
}
const isWithin = (place, [from, to]) => place >= from && place < to;

// The weights of a row that the page holds, on keys from..to, as [key, weight, rounded].
const strandsOf = (head, row, keys) => topOf(head, row, Infinity).filter(([key]) => isWithin(key, keys));

// The drawn strands. With `first`, those to the first key, too.
const drawnStrands = (head, row, keys, first) => strandsOf(head, row, keys)
  .filter(([key, weight]) => weight >= LEAST_LINED && (first || key > 0) && !isHidden('key', key));

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  made.append(...children.flat(Infinity).filter(Boolean));
  return made;
}

const lineWidth = (weight) => 0.8 + 8 * weight;
const lineStrength = (weight) => 0.1 + 0.9 * Math.min(1, weight) ** 0.6;
const headColour = (index) => `var(--head-${index})`;
const NUMBER_ROOM = 44;
const LINE_FONT = '650 ' + FONT.replace('12px', '13px');  // bold, as the chosen word is
const SIDES = { row: 'query', key: 'key' };

// spec: heads, rows and keys ([from, to) each), label, pick(side, place), and `first`: whether lines to the first key
// are drawn.
class LinePicture {
  constructor(spec) {
    this.spec = spec;
    this.node = drawn('svg', { class: 'line-picture', role: 'group', 'aria-label': spec.label });
    this.node.addEventListener('pointerover', (event) => {
      const word = event.pointerType !== 'touch' && this.wordOf(event);
      if (word) point(word);
    });
    this.node.addEventListener('pointerleave', () => point(null));
    this.node.addEventListener('focusin', (event) => this.wordOf(event) && point(this.wordOf(event)));
    this.node.addEventListener('focusout', () => point(null));
    this.node.addEventListener('click', (event) => {
      const word = this.wordOf(event);
      if (word) spec.pick(word.side, word[word.side]);
    });
    this.node.addEventListener('keydown', (event) => this.onKey(event));
  }

  wordOf(event) {
    const { side, place } = event.target.closest('.line-word')?.dataset ?? {};
    return side && { side, [side]: Number(place) };
  }

  layOut(width) {
    const { rows, keys, heads } = this.spec;
    const narrow = width < 560;
    const shown = (kind, [from, to]) => Array.from({ length: to - from }, (_, i) => from + i).filter((place) => !isHidden(kind, place));
    this.places = { row: shown('row', rows), key: shown('key', keys) };
    const count = Math.max(this.places.row.length, this.places.key.length);
    this.step = Math.max(narrow ? 24 : 20, Math.min(28, Math.floor(760 / count)));
    this.numbered = narrow ? 1 : heads.length;
    const numbers = this.numbered * NUMBER_ROOM;
    this.width = Math.min(width, 640 + 2 * numbers);
    const most = narrow ? 0.23 * this.width : 150;
    const wide = (words, [from, to]) => Math.ceil(Math.min(most, widest(labelled(words, from, to), LINE_FONT)));
    this.words = { row: wide(queryWords, rows), key: wide(keyWords, keys) };
    this.edge = { row: numbers + this.words.row + 12, key: this.width - numbers - this.words.key - 12 };
    this.top = 26;
    this.height = this.top + this.step * count + 6;
    for (const [name, value] of Object.entries({ width: this.width, height: this.height,
      viewBox: `0 0 ${this.width} ${this.height}`, 'font-family': FONT.replace(/^\S+ /, ''), 'font-size': 13 }))
      this.node.setAttribute(name, value);
    this.base = drawn('g', { class: 'line-all' });
    for (const row of this.places.row) this.base.append(...this.linesFrom(row));
    this.shown = drawn('g', { class: 'line-shown' });
    this.node.replaceChildren(this.base, this.shown, this.title('row'), this.title('key'),
      ...this.column('row', queryWords), ...this.column('key', keyWords));
    this.now = undefined;
  }

  heightOf(side, place) {
    return this.top + (this.places[side].indexOf(place) + 0.5) * this.step;
  }

  title(side) {
    return drawn('text', { x: this.edge[side] + (side === 'row' ? -8 : 8), y: 14, fill: 'var(--soft)', 'font-size': 12,
      'text-anchor': side === 'row' ? 'end' : 'start', 'aria-hidden': 'true' }, SIDES[side] + (side === 'row' ? ' →' : ''));
  }

  column(side, words) {
    const left = side === 'row';
    const width = this.numbered * NUMBER_ROOM + this.words[side] + 12;
    return this.places[side].map((place) => {
      const name = nameOf(words, place);
      return drawn('g', { class: 'line-word', role: 'button', tabindex: -1, 'aria-pressed': 'false', 'data-side': side,
        'data-place': place, 'aria-label': `${SIDES[side]} ${place}: ${name}` },
      drawn('rect', { x: left ? 0 : this.edge.key, y: this.heightOf(side, place) - this.step / 2, width, height: this.step,
        fill: 'transparent' }),
      drawn('rect', { class: 'line-mark', x: left ? this.edge.row - this.words.row - 11 : this.edge.key + 3, rx: 4,
        y: this.heightOf(side, place) - this.step / 2 + 1, width: this.words[side] + 8, height: this.step - 2, fill: 'none' }),
      drawn('text', { x: this.edge[side] + (left ? -8 : 8), y: this.heightOf(side, place), fill: 'var(--ink)',
        'text-anchor': left ? 'end' : 'start', 'dominant-baseline': 'central' }, fitted(name, this.words[side], LINE_FONT)));
    });
  }

  linesFrom(row, only = null) {
    const { heads, keys, first } = this.spec;
    return heads.flatMap((head, index) => drawnStrands(head, row, keys, first)
      .filter(([key]) => only === null || key === only)
      .map(([key, weight]) => this.line(row, key, weight, index)));
  }

  line(row, key, weight, index) {
    const apart = (index - (this.spec.heads.length - 1) / 2) * 2.5;  // lines of several heads lie side by side
    const [x, X] = [this.edge.row, this.edge.key];
    const [y, Y] = [this.heightOf('row', row) + apart, this.heightOf('key', key) + apart];
    const bend = (X - x) * 0.45;
    return drawn('path', { d: `M${x} ${y}C${x + bend} ${y} ${X - bend} ${Y} ${X} ${Y}`, fill: 'none', stroke: headColour(index),
      'stroke-width': lineWidth(weight).toFixed(2), 'stroke-opacity': lineStrength(weight).toFixed(3),
      'data-row': row, 'data-key': key, 'data-head': this.spec.heads[index] });
  }

  // lit: {side, place}, the only word whose lines are shown; `to` marks a word on the other side. `only` shows one
  // head.
  refresh(lit, pinned = null, only = null) {
    const now = JSON.stringify([lit, pinned, only]);
    if (now === this.now) return;
    this.now = now;
    const all = lit === null && only === null;
    if (all) this.base.removeAttribute('display');
    else this.base.setAttribute('display', 'none');
    const lines = all ? [] : lit ? this.linesOf(lit) : [...this.base.children].map((line) => line.cloneNode());
    this.shown.replaceChildren(...lines.filter((line) => only === null || Number(line.dataset.head) === only),
      ...(lit ? this.numbersOf(lit) : []));
    for (const word of this.node.querySelectorAll('.line-word')) this.dress(word, lit, pinned);
  }

  linesOf({ side, place }) {
    if (side === 'row') return this.linesFrom(place);
    return this.places.row.map((row) => this.linesFrom(row, place)).flat();
  }

  // The weights of a word, beside the words that they lead to: for each head, or only the largest if there is little
  // room.
  numbersOf({ side, place }) {
    const { heads } = this.spec;
    const other = side === 'row' ? 'key' : 'row';
    const texts = [];
    for (const i of this.places[other]) {
      const [row, key] = side === 'row' ? [place, i] : [i, place];
      const found = heads.map((head, index) => ({ index, held: heldWeight(head, row, key) })).filter(({ held }) => held?.weight >= LEAST_WRITTEN);
      if (this.numbered < heads.length) found.sort((a, b) => b.held.weight - a.held.weight).splice(1);
      texts.push(...found.map(({ index, held }) => this.number(other, i, this.numbered < heads.length ? 0 : index, index, held)));
    }
    return texts;
  }

  number(side, place, slot, index, { weight }) {
    const x = side === 'key' ? this.width - (this.numbered - slot - 1) * NUMBER_ROOM - 3 : (slot + 1) * NUMBER_ROOM - 8;
    return drawn('text', { class: 'line-number', x, y: this.heightOf(side, place), fill: headColour(index), 'font-size': 12,
      'font-weight': weight >= 0.1 ? 650 : 400, 'text-anchor': 'end', 'dominant-baseline': 'central' },
    weight.toFixed(3));
  }

  dress(word, lit, pinned) {
    const { side, place } = word.dataset;
    const is = (chosen) => chosen !== null && chosen.side === side && chosen.place === Number(place);
    const to = lit?.to !== undefined && side !== lit.side && lit.to === Number(place);
    const [, mark, text] = word.children;
    const chosen = is(lit) || to;
    mark.setAttribute('stroke', chosen ? `var(--${SIDES[side]})` : 'none');
    mark.setAttribute('stroke-width', chosen ? 1.6 : 0);
    if (chosen && side === 'key') mark.setAttribute('stroke-dasharray', '4 3');
    else mark.removeAttribute('stroke-dasharray');
    text.setAttribute('font-weight', chosen ? 650 : 400);
    word.setAttribute('aria-pressed', String(is(pinned)));
    const start = pinned ?? { side: 'row', place: this.places.row[0] };
    if (!this.node.contains(document.activeElement)) word.setAttribute('tabindex', is(start) ? 0 : -1);
  }

  focus(side, place) {
    const places = this.places[side];
    const nearest = places.findLast((one) => one <= place) ?? places[0];
    const word = this.node.querySelector(`[data-side="${side}"][data-place="${nearest}"]`);
    for (const other of this.node.querySelectorAll('.line-word[tabindex="0"]')) other.setAttribute('tabindex', -1);
    word.setAttribute('tabindex', 0);
    word.focus();
  }

  onKey(event) {
    const word = this.wordOf(event);
    if (!word || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = word[word.side];
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === 'Enter' || event.key === ' ') this.spec.pick(word.side, place);
    else if (event.key === 'ArrowLeft') this.focus('row', place);
    else if (event.key === 'ArrowRight') this.focus('key', place);
    else if (moves[event.key]) {
      const places = this.places[word.side];
      this.focus(word.side, places[Math.max(0, Math.min(places.length - 1, places.indexOf(place) + moves[event.key]))]);
    }
    else return;
    event.preventDefault();
  }
}

const labelled = (words, from, to) => Array.from({ length: to - from }, (_, i) => nameOf(words, from + i));

// One weight as {weight, rounded}; one that masks forbid has weight -Infinity; null if the page lacks it.
function heldWeight(head, row, key) {
  const weight = weightAt(head, row, key);
  if (weight !== null) return { weight, rounded: pyramidOf(head)?.[0].rounded ?? true };
  if (!maySee(head, row, key)) return { weight: -Infinity, rounded: false };
  const found = topOf(head, row, Infinity).find(([held]) => held === key);
  return found ? { weight: found[1], rounded: found[2] } : null;
}

// The picture as the text of a file, with resolved colours.
function svgText(picture) {
  const copy = picture.node.cloneNode(true);
  for (const hidden of copy.querySelectorAll('[display="none"], rect[fill="transparent"]')) hidden.remove();
  for (const name of ['fill', 'stroke'])
    for (const part of copy.querySelectorAll(`[${name}^="var("]`))
      part.setAttribute(name, themeColour(part.getAttribute(name).slice('var(--'.length, -1)));
  for (const word of copy.querySelectorAll('.line-word'))
    for (const name of ['tabindex', 'role', 'aria-pressed', 'aria-label']) word.removeAttribute(name);
  copy.prepend(drawn('rect', { width: '100%', height: '100%', fill: themeColour('surface') }));
  return new XMLSerializer().serializeToString(copy).replace(/[\ufffe\uffff]/g, '\ufffd');
}

async function downloadSvgAsPng(name, picture) {
  const dots = 2;
  const image = new Image();
  const url = URL.createObjectURL(new Blob([svgText(picture)], { type: 'image/svg+xml' }));
  image.src = url;
  await image.decode();
  const canvas = element('canvas', { width: Math.round(picture.width * dots), height: Math.round(picture.height * dots) });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => download(name + '.png', 'image/png', blob), 'image/png');
}

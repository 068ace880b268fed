// The map of a head's weights, at any length, with zoom.
const TICK_ROOM = 58;
const LARGEST_BIN = 56;   // pixels
const WIDEST_BIN = 1.6;   // as a multiple of its height
const LEAST_HIGH = 380;
const ROOM_AROUND = 200;  // of a window, for what stands around the map
const LEAST_BAND = 7;     // between the edges of a selection
const PAPER_HIGH = 520;   // so that a map, its labels and its curves fit a printed page

// Draws the rows and keys `seen` = [r0, r1, k0, k1] of a level into a box of the canvas.
function drawLevel(pen, level, seen, [x, y, width, height], origin = [0, 0]) {
  const image = imageOf(level);
  const [r0, r1, k0, k1] = seen;
  const across = width / (k1 - k0);
  const down = height / (r1 - r0);
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.imageSmoothingEnabled = false;
  const box = [x + (origin[1] - k0) * across, y + (origin[0] - r0) * down, level.columns * level.keyStep * across,
    level.rows * level.rowStep * down];
  if (image.clear) {
    pen.fillStyle = hatch(pen);
    pen.fillRect(...box);
  }
  pen.drawImage(image.canvas, ...box);
  pen.restore();
}

// Round numbers between from and to, at most `most`.
function ticksOf(from, to, most) {
  let step = 1;
  for (let n = 0; (to - from) / step > most; n++) step *= n % 3 === 1 ? 2.5 : 2;
  step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let place = Math.ceil(from / step) * step; place < to; place += step) ticks.push(place);
  return ticks;
}

class MapPicture {
  constructor(head = state.head) {
    this.head = head;
    this.base = element('canvas', { class: 'base', 'aria-hidden': 'true' });
    this.marks = element('canvas', { class: 'marks', tabindex: '0', role: 'application', 'aria-roledescription': 'map',
      'aria-label': `Map of ${mapName(this.head)}, ${spelled(page.query_count)} rows by ${spelled(page.key_count)} keys; ` +
        'arrow keys move, plus and minus zoom, 0 shows all' });
    this.node = element('div', { class: 'grid' }, this.base, this.marks);
    this.seen = seenOf(state.zoom);
    const { marks } = this;
    marks.addEventListener('pointermove', (event) => this.onMove(event));
    marks.addEventListener('pointerdown', (event) => this.onDown(event));
    marks.addEventListener('pointerup', (event) => this.onUp(event));
    marks.addEventListener('pointerleave', () => { hideTip(); if (!this.drag) point(null); });
    marks.addEventListener('dblclick', (event) => this.zoom(0.5, this.placeAt(event)));
    marks.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    marks.addEventListener('keydown', (event) => this.onKey(event));
  }

  layOut(width) {
    this.words = [queryWords.length > 0, keyWords.length > 0];
    this.left = this.words[0] ? Math.max(40, widest(queryWords) + 8) : TICK_ROOM;
    const [r0, r1, k0, k1] = wholeMap();
    this.wide = Math.max(80, Math.min(width - this.left - 2, (k1 - k0) * LARGEST_BIN));
    this.room = width;
    this.single = this.showsSingle();
    const named = this.words[1] && this.single && this.wide / (this.seen[3] - this.seen[2]) >= LEAST_LABEL_STEP;
    this.top = named ? Math.min(LONGEST_LABEL, widest(keyWords)) + 12 : 22;
    const most = isPrinting() ? PAPER_HIGH - this.top : Math.max(LEAST_HIGH, window.innerHeight - this.top - ROOM_AROUND);
    this.high = Math.max(60, this.wide * (r1 - r0) / (k1 - k0));
    // Maps with words may have wide bins; larger maps keep the shape of the matrix.
    const stretch = named ? WIDEST_BIN : 1;
    if (this.high > most) [this.wide, this.high] = [Math.max(80, this.wide * Math.min(1, stretch * most / this.high)), most];
    this.width = this.left + this.wide + 2;
    this.height = this.top + this.high + 2;
    this.dots = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.marks]) {
      canvas.width = Math.round(this.width * this.dots);
      canvas.height = Math.round(this.height * this.dots);
      canvas.style.width = this.width + 'px';
      canvas.style.height = this.height + 'px';
      canvas.getContext('2d').setTransform(this.dots, 0, 0, this.dots, 0, 0);
    }
    this.node.style.width = this.width + 'px';
    this.node.style.height = this.height + 'px';
    this.paint();
  }

  // Whether single weights are drawn, or can be. Bins have no words.
  showsSingle() {
    const level = pyramidOf(this.head)?.[0];
    if (isServed() || !level || (level.rowStep === 1 && level.keyStep === 1)) return true;
    const [r0, r1, k0, k1] = this.seen;
    return tilesOf(this.head).some((tile) => tile.row_begin < r1 && tile.row_end > r0 && tile.key_begin < k1 && tile.key_end > k0);
  }

  // Pixels per row and per key.
  get scale() {
    const [r0, r1, k0, k1] = this.seen;
    return [this.high / (r1 - r0), this.wide / (k1 - k0)];
  }

  paint() {
    const pen = this.base.getContext('2d');
    pen.clearRect(0, 0, this.width, this.height);
    this.marks.dataset.cells = [this.left, this.top, this.scale[1], this.scale[0]].join(' ');
    const box = [this.left, this.top, this.wide, this.high];
    const [down, across] = this.scale;
    if (pyramidOf(this.head)) {
      const pixel = [1 / (down * this.dots), 1 / (across * this.dots)];
      const held = levelFor(this.head, ...pixel);
      this.level = (!isDifference(this.head) && fetchedLevel(this.head, this.seen, ...pixel, held)) || held;
      drawLevel(pen, held, this.seen, box);
      const origin = originOf(this.level);
      if (this.level !== held) drawLevel(pen, this.level, this.seen, box, origin);
      paintNumbers(pen, this.level, shareScale(this.level),
        this.seen.map((edge, i) => (edge - origin[i >> 1]) / this.steps[i >> 1]), box);
      for (const tile of tilesOf(this.head)) this.paintTile(pen, tile, box);
    }
    this.blankHidden(pen, box);
    this.paintAxes(pen, box);
  }

  // Hidden tokens between others leave a gap.
  blankHidden(pen, [x, y, width, height]) {
    const [r0, r1, k0, k1] = this.seen;
    const [down, across] = this.scale;
    pen.fillStyle = themeColour('surface');
    const between = (kind, from, to) => [...specialPlaces[kind]].filter((place) => isHidden(kind, place) && place >= from && place < to);
    for (const row of between('row', r0, r1)) pen.fillRect(x, y + (row - r0) * down, width, down);
    for (const key of between('key', k0, k1)) pen.fillRect(x + (key - k0) * across, y, across, height);
  }

  // Repaints with numbers that the server has sent.
  repaint() { if (!this.drag) this.layOut(this.room); }

  get steps() { return [this.level.rowStep, this.level.keyStep]; }

  // Draws single weights over the surrounding bins, with their own colours, in a frame.
  paintTile(pen, tile, box) {
    const [down, across] = this.scale;
    drawLevel(pen, tile.level, this.seen, box, [tile.row_begin, tile.key_begin]);
    const [r0, r1, k0, k1] = this.seen;
    paintNumbers(pen, tile.level, shareScale(tile.level), [r0 - tile.row_begin, r1 - tile.row_begin, k0 - tile.key_begin,
      k1 - tile.key_begin], box);
    pen.save();
    pen.beginPath();
    pen.rect(...box);
    pen.clip();
    pen.strokeStyle = themeColour('accent');
    pen.strokeRect(this.left + (tile.key_begin - k0) * across, this.top + (tile.row_begin - r0) * down,
      (tile.key_end - tile.key_begin) * across, (tile.row_end - tile.row_begin) * down);
    pen.restore();
  }

  paintAxes(pen, [x, y, width, height]) {
    const [r0, r1, k0, k1] = this.seen;
    const [down, across] = this.scale;
    pen.strokeStyle = themeColour('line');
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
    pen.font = FONT;
    pen.fillStyle = themeColour('soft');
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    const namedRows = this.words[0] && this.single && down >= LEAST_LABEL_STEP;
    for (const row of namedRows ? ticksOf(r0 - 0.5, r1, 1e4) : ticksOf(r0, r1, height / 44)) {
      if (row < 0 || row >= page.query_count || isHidden('row', row) || (row + 0.5 - r0) * down > height) continue;
      pen.fillText(namedRows ? fitted(queryWords[row], LONGEST_LABEL, FONT) : spelled(row), x - 6, y + (row + 0.5 - r0) * down);
    }
    const namedKeys = this.words[1] && this.single && across >= LEAST_LABEL_STEP;
    for (const key of namedKeys ? ticksOf(k0 - 0.5, k1, 1e4) : ticksOf(k0, k1, width / 84)) {
      if (key < 0 || key >= page.key_count || key + 0.5 < k0 || key + 0.5 > k1 || isHidden('key', key)) continue;
      pen.save();
      const half = namedKeys ? 0 : pen.measureText(spelled(key)).width / 2;
      pen.translate(Math.min(x + (key + 0.5 - k0) * across, this.width - half), y - 7);
      if (namedKeys) pen.rotate(-Math.PI / 2);
      pen.textAlign = namedKeys ? 'left' : 'center';
      pen.fillText(namedKeys ? fitted(keyWords[key], this.top - 9, FONT) : spelled(key), 0, namedKeys ? 0 : -3);
      pen.restore();
    }
  }

  mark({ row, key }) {
    const pen = this.marks.getContext('2d');
    pen.clearRect(0, 0, this.width, this.height);
    const [r0, , k0] = this.seen;
    const [down, across] = this.scale;
    pen.save();
    pen.beginPath();
    pen.rect(this.left - 1, this.top - 1, this.wide + 2, this.high + 2);
    pen.clip();
    const band = (x, y, width, height, kind) => {
      pen.setLineDash([]);
      pen.lineWidth = 3;
      pen.strokeStyle = 'rgb(0 0 0 / 0.4)';
      pen.strokeRect(x, y, width, height);
      pen.lineWidth = 1.6;
      pen.strokeStyle = themeColour(kind + '-line');
      if (kind === 'key') pen.setLineDash([5, 3]);
      pen.strokeRect(x, y, width, height);
    };
    // A band around a thin row leaves it in sight.
    const room = (size) => Math.max(size, LEAST_BAND);
    const from = (place, size) => place * size - (room(size) - size) / 2;
    band(this.left - 3, this.top + from(row - r0, down), this.wide + 6, room(down), 'query');
    band(this.left + from(key - k0, across), this.top - 3, room(across), this.high + 6, 'key');
    pen.restore();
  }

  placeAt(event) {
    const box = this.marks.getBoundingClientRect();
    const [down, across] = this.scale;
    const row = Math.floor(this.seen[0] + (event.clientY - box.top - this.top) / down);
    const key = Math.floor(this.seen[2] + (event.clientX - box.left - this.left) / across);
    return { row: shownPlace('row', row), key: shownPlace('key', key) };
  }

  onMove(event) {
    if (this.drag) return this.onDrag(event);
    if (event.pointerType === 'touch') return;
    const place = this.placeAt(event);
    point(place);
    showTip(event, describePlace(this.level, place, this.head));
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, y: event.clientY, seen: this.seen, moved: false };
    this.marks.setPointerCapture(event.pointerId);
  }

  onDrag(event) {
    const { x, y, seen } = this.drag;
    if (!this.drag.moved && Math.hypot(event.clientX - x, event.clientY - y) < 4) return;
    this.drag.moved = true;
    hideTip();
    const [down, across] = this.scale;
    const rows = (y - event.clientY) / down;
    const keys = (x - event.clientX) / across;
    this.show([seen[0] + rows, seen[1] + rows, seen[2] + keys, seen[3] + keys]);
  }

  onUp(event) {
    const { moved } = this.drag || {};
    this.drag = null;
    if (moved) return this.keep();
    choose(this.placeAt(event));
  }

  onWheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.placeAt(event));
  }

  // Shows `factor` times as many rows and keys, around a fixed place.
  zoom(factor, { row, key } = followed()) {
    const [r0, r1, k0, k1] = this.seen;
    const inside = row >= r0 && row < r1 && key >= k0 && key < k1;
    const [r, k] = inside ? [row + 0.5, key + 0.5] : [(r0 + r1) / 2, (k0 + k1) / 2];
    this.show([r - (r - r0) * factor, r + (r1 - r) * factor, k - (k - k0) * factor, k + (k1 - k) * factor]);
    this.keep();
  }

  show(seen) {
    this.seen = within(seen);
    this.layOut(this.room);
    this.onseen?.();
    refresh();
  }

  keep() {
    state.zoom = this.seen.every((edge, i) => edge === wholeMap()[i]) ? '' : this.seen.map((edge) => Number(edge.toFixed(3))).join('_');
    writeFragment();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const wide = Math.max(1, Math.round(event.shiftKey ? this.level?.keyStep ?? 1 : 1));
    const high = Math.max(1, Math.round(event.shiftKey ? this.level?.rowStep ?? 1 : 1));
    const moves = { ArrowUp: [-high, 0], ArrowDown: [high, 0], ArrowLeft: [0, -wide], ArrowRight: [0, wide],
      PageUp: [-Math.round(page.query_count / 10), 0], PageDown: [Math.round(page.query_count / 10), 0],
      Home: [0, -page.key_count], End: [0, page.key_count] };
    if (event.key === '+' || event.key === '=') this.zoom(0.5);
    else if (event.key === '-') this.zoom(2);
    else if (event.key === '0') { this.show(wholeMap()); this.keep(); }
    else if (moves[event.key]) {
      const [row, key] = ['row', 'key'].map((kind, i) => shownPlace(kind, state[kind] + moves[event.key][i], moves[event.key][i]));
      choose({ row, key });
      tell(describePlace(this.level, { row, key }, this.head));
    } else return;
    event.preventDefault();
  }
}

// The first row and key of a level.
const originOf = ({ rowBegin = 0, keyBegin = 0 }) => [rowBegin, keyBegin];
const wholeMap = () => [...shownRange('row'), ...shownRange('key')];
// Clamps edges to the matrix, at least four rows and keys apart.
function within([r0, r1, k0, k1]) {
  const side = (from, to, [first, end]) => {
    const size = Math.min(end - first, Math.max(Math.min(4, end - first), to - from));
    const begin = Math.max(first, Math.min(end - size, (from + to - size) / 2));
    return [begin, begin + size];
  };
  return [...side(r0, r1, shownRange('row')), ...side(k0, k1, shownRange('key'))];
}
function seenOf(text) {
  const edges = text.split('_').map(Number);
  return edges.length === 4 && edges.every(Number.isFinite) && edges[0] < edges[1] && edges[2] < edges[3] ? within(edges) : wholeMap();
}

// "the → cat: 0.3012"; for a bin its rows and keys, and the rows' average share.
function describePlace(level, { row, key }, head = state.head) {
  const weight = weightText(head, row, key);
  if (weight !== null) return `${pairText(row, key)}: ${weight}`;
  if (!level) return '';
  const [r0, k0] = originOf(level);
  const [r, c] = [Math.floor((row - r0) / level.rowStep), Math.floor((key - k0) / level.keyStep)];
  const value = at(level, Math.min(r, level.rows - 1), Math.min(c, level.columns - 1));
  // (The 1e-6 absorbs rounding errors of edges that should be whole.)
  const range = (bin, step, count, origin) => {
    const [from, to] = [origin + bin * step, Math.min(count, origin + (bin + 1) * step)].map((edge) => Math.ceil(edge - 1e-6));
    return from >= to - 1 ? spelled(from) : `${spelled(from)}–${spelled(to - 1)}`;
  };
  const where = `rows ${range(r, level.rowStep, page.query_count, r0)} → keys ${range(c, level.keyStep, page.key_count, k0)}`;
  return isMasked(value) ? `${where}\nmasked` : `${where}\n${short(value)} of a row, on average`;
}

// "layer 1, head 2 − layer 0, head 3"
const mapName = (head) => String(head).split('-').map((one) => headName(Number(one))).join(' − ');

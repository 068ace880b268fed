// A matrix as a picture on a canvas. Each cell is a rectangle of one colour, never blended with its neighbours. The
// picture is painted once. The outlines that follow the pointer are on a second canvas above it.
const FONT = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const LABEL_GAP = 7;
const LEAST_LABEL_STEP = 12;
const LARGEST_CELL = 46;
const LONGEST_LABEL = 92;

const ruler = document.createElement('canvas').getContext('2d');
function fitted(text, room, font = FONT) {
  ruler.font = font;
  if (ruler.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && ruler.measureText(letters.join('') + '…').width > room) letters.pop();
  return letters.join('') + '…';
}
// (Bold, because the selected label is bold.)
function widest(labels, font = '600 ' + FONT) {
  ruler.font = font;
  let width = 0;
  for (const label of labels.length > 2000 ? labels.slice(0, 2000) : labels)
    width = Math.max(width, ruler.measureText(label).width);
  return Math.min(LONGEST_LABEL, Math.ceil(width));
}

// A matrix as an image with one pixel per cell; masked cells stay transparent.
function pixelsOf(matrix, scale) {
  const image = new ImageData(matrix.columns, matrix.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = coloursOf(scale).map(([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0);
  const { values, columns } = matrix;
  let clear = false;
  for (let row = 0; row < matrix.rows; row++) {
    const own = scaleOfRow(scale, matrix, row);
    for (let i = row * columns; i < (row + 1) * columns; i++) {
      if (values[i] === -Infinity) clear = true;
      else if (Number.isNaN(values[i])) pixels[i] = NOT_A_NUMBER;
      else pixels[i] = packed[colourNumber(own, values[i])];
    }
  }
  const canvas = element('canvas', { width: matrix.columns, height: matrix.rows });
  canvas.getContext('2d').putImageData(image, 0, 0);
  return { canvas, clear };
}

const isMasked = (value) => value === -Infinity;
const NOT_A_NUMBER = 0xff3c14dc;  // crimson, which no palette has

// spec: matrix, scale, rowLabels, columnLabels (or none), square, label (for screen readers), and
//   marks(followed)      -> {rows: [[index, kind]], columns: [[index, kind]], cell: [row, column] or none}
//   place(row, column)   -> the place that the pointer selects there
//   describe(row, column)-> its description
class Grid {
  constructor(spec) {
    this.spec = spec;
    this.base = element('canvas', { class: 'base', 'aria-hidden': 'true' });
    this.marks = element('canvas', { class: 'marks', tabindex: '0', role: 'application',
      'aria-roledescription': 'heat map', 'aria-label': spec.label });
    this.node = element('div', { class: 'grid' }, this.base, this.marks);
    this.marks.addEventListener('pointermove', (event) => this.onPointer(event));
    this.marks.addEventListener('pointerleave', () => { hideTip(); point(null); });
    this.marks.addEventListener('click', (event) => this.onClick(event));
    this.marks.addEventListener('keydown', (event) => this.onKey(event));
    this.marks.addEventListener('focus', () => this.spec.onfocus?.());
  }

  // Computes sizes for a width in pixels, then paints.
  layOut(width) {
    const { matrix, rowLabels, columnLabels, square, plain } = this.spec;
    this.left = rowLabels ? widest(rowLabels) + LABEL_GAP : 0;
    const room = Math.max(40, width - this.left - 1);
    this.cellWidth = Math.min(room / matrix.columns, LARGEST_CELL);
    if (this.cellWidth >= 3) this.cellWidth = Math.floor(this.cellWidth);
    this.cellWidth = Math.max(this.cellWidth, 1);
    this.cellHeight = square ? Math.min(this.cellWidth, LARGEST_CELL)
      : Math.max(2, Math.min(24, Math.floor(420 / matrix.rows)));
    if (square && !plain && matrix.rows <= 12) this.cellHeight = Math.max(this.cellHeight, 20);
    this.upright = columnLabels && widest(columnLabels) > this.cellWidth - 4;
    this.top = !columnLabels ? 0 : this.upright ? Math.min(76, widest(columnLabels)) + LABEL_GAP : 18;
    this.width = this.left + this.cellWidth * matrix.columns + 1;
    this.height = this.top + this.cellHeight * matrix.rows + 1;
    for (const canvas of [this.base, this.marks]) {
      const dots = Math.min(window.devicePixelRatio || 1, 3);
      canvas.width = Math.round(this.width * dots);
      canvas.height = Math.round(this.height * dots);
      canvas.style.width = this.width + 'px';
      canvas.style.height = this.height + 'px';
      canvas.getContext('2d').setTransform(dots, 0, 0, dots, 0, 0);
    }
    this.node.style.width = this.width + 'px';
    this.node.style.height = this.height + 'px';
    // The position of the cells, for scripts that read the page.
    this.marks.dataset.cells = [this.left, this.top, this.cellWidth, this.cellHeight].join(' ');
    this.paint();
  }

  paint() {
    const pen = this.base.getContext('2d');
    const { matrix, scale } = this.spec;
    pen.clearRect(0, 0, this.width, this.height);
    const { canvas, clear } = pixelsOf(matrix, scale);
    const [width, height] = [this.cellWidth * matrix.columns, this.cellHeight * matrix.rows];
    this.clear = clear;
    if (clear) {
      pen.fillStyle = hatch(pen);
      pen.fillRect(this.left, this.top, width, height);
    }
    pen.imageSmoothingEnabled = false;
    pen.drawImage(canvas, this.left, this.top, width, height);
    if (Math.min(this.cellWidth, this.cellHeight) >= 9) this.paintGaps(pen, width, height);
    paintNumbers(pen, matrix, scale, [0, matrix.rows, 0, matrix.columns], [this.left, this.top, width, height]);
    this.paintLabels(pen);
  }

  paintGaps(pen, width, height) {
    const { matrix } = this.spec;
    pen.fillStyle = themeColour('surface');
    for (let row = 1; row < matrix.rows; row++)
      pen.fillRect(this.left, this.top + row * this.cellHeight - 0.5, width, 1);
    for (let column = 1; column < matrix.columns; column++)
      pen.fillRect(this.left + column * this.cellWidth - 0.5, this.top, 1, height);
  }

  paintLabels(pen) {
    const { rowLabels, columnLabels } = this.spec;
    pen.font = FONT;
    pen.fillStyle = themeColour('soft');
    pen.textBaseline = 'middle';
    if (rowLabels) {
      pen.textAlign = 'right';
      const every = Math.ceil(LEAST_LABEL_STEP / this.cellHeight);
      for (let row = 0; row < rowLabels.length; row += every)
        pen.fillText(fitted(rowLabels[row], LONGEST_LABEL), this.left - LABEL_GAP,
          this.top + (row + 0.5) * this.cellHeight);
    }
    if (!columnLabels) return;
    const every = this.upright ? Math.ceil(LEAST_LABEL_STEP / this.cellWidth) : 1;
    pen.textAlign = this.upright ? 'left' : 'center';
    for (let column = 0; column < columnLabels.length; column += every) {
      const x = this.left + (column + 0.5) * this.cellWidth;
      pen.save();
      pen.translate(x, this.upright ? this.top - LABEL_GAP : this.top - 9);
      if (this.upright) pen.rotate(-Math.PI / 2);
      pen.fillText(fitted(columnLabels[column], this.upright ? 76 : this.cellWidth), 0, 0);
      pen.restore();
    }
  }

  // Draws the outlines: solid for the query, dashed for the key, and the cell where they meet.
  mark(followedNow) {
    const pen = this.marks.getContext('2d');
    pen.clearRect(0, 0, this.width, this.height);
    const { matrix } = this.spec;
    const { rows = [], columns = [], cell } = this.spec.marks(followedNow);
    const [width, height] = [this.cellWidth * matrix.columns, this.cellHeight * matrix.rows];
    for (const [row, kind] of rows) {
      this.outline(pen, this.left, this.top + row * this.cellHeight, width, this.cellHeight, kind);
      this.boldLabel(pen, row, kind, true);
    }
    for (const [column, kind] of columns) {
      this.outline(pen, this.left + column * this.cellWidth, this.top, this.cellWidth, height, kind);
      this.boldLabel(pen, column, kind, false);
    }
    if (cell)
      this.outline(pen, this.left + cell[1] * this.cellWidth, this.top + cell[0] * this.cellHeight,
        this.cellWidth, this.cellHeight, 'cell');
  }

  outline(pen, x, y, width, height, kind) {
    const inset = kind === 'cell' ? -1 : 0.5;
    const box = [x + inset, y + inset, width - 2 * inset, height - 2 * inset];
    pen.setLineDash([]);
    pen.strokeStyle = 'rgb(0 0 0 / 0.75)';
    pen.lineWidth = kind === 'cell' ? 5 : 4;
    pen.strokeRect(...box);
    pen.strokeStyle = kind === 'cell' ? '#ffffff' : themeColour(kind + '-line');
    pen.lineWidth = kind === 'cell' ? 2.5 : 2;
    if (kind === 'key') pen.setLineDash([5, 3]);
    pen.strokeRect(...box);
    pen.setLineDash([]);
  }

  boldLabel(pen, index, kind, isRow) {
    const labels = isRow ? this.spec.rowLabels : this.spec.columnLabels;
    if (!labels || kind === 'part') return;
    pen.font = '600 ' + FONT;
    pen.textBaseline = 'middle';
    pen.fillStyle = themeColour('surface');
    const text = fitted(labels[index], LONGEST_LABEL, pen.font);
    const width = pen.measureText(text).width;
    const [x, y] = isRow ? [this.left - LABEL_GAP, this.top + (index + 0.5) * this.cellHeight]
      : [this.left + (index + 0.5) * this.cellWidth, this.upright ? this.top - LABEL_GAP : this.top - 9];
    pen.save();
    pen.translate(x, y);
    if (!isRow && this.upright) pen.rotate(-Math.PI / 2);
    pen.textAlign = isRow ? 'right' : this.upright ? 'left' : 'center';
    const from = isRow ? -width : this.upright ? 0 : -width / 2;
    pen.fillRect(from - 2, -8, width + 4, 16);
    pen.fillStyle = themeColour(kind);
    pen.fillText(text, 0, 0);
    pen.restore();
  }

  cellAt(event) {
    const box = this.marks.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.cellWidth);
    const row = Math.floor((event.clientY - box.top - this.top) / this.cellHeight);
    const { matrix } = this.spec;
    if (row >= matrix.rows || column >= matrix.columns || (row < 0 && column < 0)) return null;
    const now = this.cursor();
    return [row < 0 ? now[0] : row, column < 0 ? now[1] : column];
  }

  // The cell selected by the keyboard.
  cursor() { return this.spec.marks(followed()).cursor || [0, 0]; }

  onPointer(event) {
    if (event.pointerType === 'touch') return;
    const cell = this.cellAt(event);
    if (!cell) {
      hideTip();
      return point(null);
    }
    point(this.spec.place(...cell));
    showTip(event, this.spec.describe(...cell));
  }

  onClick(event) {
    const cell = this.cellAt(event);
    if (!cell) return;
    choose(this.spec.place(...cell));
    tell(this.spec.describe(...cell));
  }

  onKey(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0] };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { matrix } = this.spec;
    const now = this.cursor();
    const row = Math.max(0, Math.min(matrix.rows - 1, now[0] + move[0]));
    const column = Math.max(0, Math.min(matrix.columns - 1, now[1] + move[1]));
    choose(this.spec.place(row, column));
    tell(this.spec.describe(row, column));
  }
}

const tip = element('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const right = event.clientX + 16 + tip.offsetWidth > window.innerWidth;
  tip.style.left = (right ? Math.max(4, event.clientX - tip.offsetWidth - 12) : event.clientX + 16) + 'px';
  tip.style.top = Math.min(event.clientY + 18, window.innerHeight - tip.offsetHeight - 4) + 'px';
}
const hideTip = () => { tip.hidden = true; };

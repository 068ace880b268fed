// Numbers as colours. In both themes 0 is the ground. Weights run from paper to ink; signed numbers run to one of two
// inks.
const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
function inks() {
  const pen = element('canvas', { width: 1, height: 4 }).getContext('2d', { willReadFrequently: true });
  ['surface', 'weight-ink', 'minus-ink', 'masked'].forEach((name, row) => {
    pen.fillStyle = themeColour(name);
    pen.fillRect(0, row, 1, 1);
  });
  const bytes = pen.getImageData(0, 0, 1, 4).data;
  return [0, 4, 8, 12].map((at) => [...bytes.slice(at, at + 3)]);
}

const mixed = (from, to, share) => from.map((value, i) => Math.round(value + (to[i] - value) * share));
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
// share: -1 to 1.
function colourOf(share, [paper, ink, minusInk]) {
  return mixed(paper, share < 0 ? minusInk : ink, Math.min(1, Math.abs(share)));
}
// Black or white, whichever has more contrast: at least 4.5:1 (WCAG 2's relative luminance).
const brightness = (part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
function inkOn(rgb) {
  const [red, green, blue] = rgb.map(brightness);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000000' : '#ffffff';
}

// Paints a matrix with one pixel per cell; `largest` has the full colour. masked: the cells that the row may not see.
function paintMatrix(canvas, matrix, largest, masked) {
  const all = inks();
  const image = new ImageData(matrix.columns, matrix.rows);
  matrix.values.forEach((value, i) => {
    const hidden = masked && masked(Math.floor(i / matrix.columns), i % matrix.columns);
    image.data.set([...(hidden ? all[3] : colourOf(value / (largest || 1), all)), 255], 4 * i);
  });
  canvas.width = matrix.columns;
  canvas.height = matrix.rows;
  canvas.getContext('2d').putImageData(image, 0, 0);
}

const largestOf = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

// A vector as a strip of cells. The cell under the pointer, or selected by arrow keys, is described beside it.
function strip(name, values, largest = largestOf(values)) {
  const canvas = element('canvas', { class: 'strip-cells', tabindex: '0', role: 'img',
    'aria-label': `${name}: ${values.length} numbers, from ${exact(Math.min(...values))} to ${exact(Math.max(...values))}; ` +
      `arrow keys read them` });
  paintMatrix(canvas, { rows: 1, columns: values.length, values }, largest);
  const told = element('output', { class: 'strip-told' }, `±${short(largest)}`);
  let at = 0;
  const tellCell = (cell) => {
    at = within(cell, 0, values.length - 1);
    told.textContent = `[${at}] ${exact(values[at])}`;
  };
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    tellCell(Math.floor(((event.clientX - box.left) / box.width) * values.length));
  });
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    event.preventDefault();
    tellCell(at + step);
    tell(told.textContent);
  });
  return element('div', { class: 'vector', 'data-vector': name }, element('span', { class: 'vector-name' }, name.length > 1
    ? name : formula(name)), canvas, told);
}

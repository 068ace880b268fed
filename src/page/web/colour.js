// Scales: from numbers to colours.
//
// A scale maps a value to a place in a palette. On a logarithmic scale, values under `low` get the lowest colour.
// `note` says what the scale leaves out. `byRow` means that each row has its own scale, see scaleOfRow().
const DECADES = 5;
function makeScale(low, high, log, least = high / 10 ** DECADES) {
  if (!(high > low)) high = low + (low === 0 ? 1 : Math.abs(low));
  if (!log) return { low, high, log, share: (value) => (value - low) / (high - low) };
  least = Math.max(low, Math.min(least, high / 10), high / 10 ** DECADES);
  const span = Math.log(high / least) || 1;
  return { low: least, high, log, share: (value) => (value > 0 ? Math.log(value / least) / span : 0) };
}

// A scale from −most to most, with 0 in the middle.
function signedScale(values) {
  const most = Math.max(...extent(values).map(Math.abs)) || 1;
  return { low: -most, high: most, log: false, signed: true, share: (value) => (value + most) / (2 * most) };
}

// The weights that set the upper end of a scale.
const SCALINGS = {
  others: 'without the first key',  // the largest weight, except those on the first key and in rows of one key
  all: 'all keys',
  row: 'row by row',  // as `others`, but for each row
};

// The largest weight of a row. The first key counts only if the row has no other.
function largestOfRow({ values, columns }, row, others) {
  let most = 0;
  const first = row * columns;
  for (let i = first + (others ? 1 : 0); i < first + columns; i++) if (values[i] > most) most = values[i];
  return most;
}
// A row with a single key carries no information: its weight is always 1.
function keysOfRow({ values, columns }, row) {
  let count = 0;
  for (let i = row * columns; i < (row + 1) * columns && count < 2; i++) if (values[i] !== -Infinity) count++;
  return count;
}

// Nearly all weights of a broad head lie within a decade, so a logarithmic scale begins where one in fifty is smaller.
function leastOf({ values }) {
  const step = Math.max(1, Math.floor(values.length / 20000));
  const some = [];
  for (let i = 0; i < values.length; i += step) if (values[i] > 0) some.push(values[i]);
  return some.sort((a, b) => a - b)[Math.floor(some.length / 50)];
}

// A common scale for matrices of weights that are drawn alike. A matrix that does not begin at the first key has
// `keyBegin`.
const holdsFirst = ({ keyBegin = 0, columns }) => keyBegin === 0 && columns > 1;
function weightScale(matrices) {
  const largest = (others) => {
    let most = 0;
    for (const matrix of matrices)
      for (let row = 0; row < matrix.rows; row++)
        if (!others || keysOfRow(matrix, row) > 1)
          most = Math.max(most, largestOfRow(matrix, row, others && holdsFirst(matrix)));
    return most;
  };
  const most = (state.scaled !== 'all' && largest(true)) || largest(false) || 1;
  const least = state.log ? Math.min(...matrices.map((matrix) => leastOf(matrix) ?? most)) : 0;
  const scale = makeScale(0, most, state.log, least);
  return Object.assign(scale, { note: state.scaled === 'all' ? '' : SCALINGS.others, byRow: state.scaled === 'row' });
}
function scaleOfRow(scale, matrix, row) {
  if (!scale.byRow) return scale;
  return makeScale(0, largestOfRow(matrix, row, holdsFirst(matrix)) || largestOfRow(matrix, row, false) || 1, scale.log);
}

function colourNumber(scale, value) {
  const share = scale.share(value);
  return share >= 1 ? COLOURS - 1 : share > 0 ? Math.floor(share * COLOURS) : 0;
}

// The hatching of masked cells, which are not zeros.
function hatch(context) {
  const size = 6;
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = themeColour('masked');
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = themeColour('hatch');
  pen.lineWidth = 1.1;
  for (const shift of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
    pen.stroke();
  }
  return context.createPattern(tile, 'repeat');
}

// The legend of a scale: colours, ends, unit, what the scale leaves out, and the hatching if cells are masked.
function legend(scale, unit, masked) {
  const bar = element('canvas', { class: 'legend-bar', width: COLOURS, height: 1, 'aria-hidden': 'true' });
  const pen = bar.getContext('2d');
  coloursOf(scale).forEach((colour, n) => {
    pen.fillStyle = css(colour);
    pen.fillRect(n, 0, 1, 1);
  });
  const low = scale.byRow ? '0' : (scale.log ? '≤ ' : '') + short(scale.low);
  const said = [unit, scale.log && 'log scale', scale.note && `scaled ${scale.note}`].filter(Boolean).join(', ');
  return element('div', { class: 'legend' }, element('span', {}, low), bar,
    element('span', {}, scale.byRow ? "the row's largest" : short(scale.high)), element('span', { class: 'unit' }, said),
    masked && element('span', { class: 'masked-key' }, element('i', {}), 'masked'));
}

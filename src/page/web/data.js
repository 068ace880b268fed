// The numbers of the page, and their formatting as text.
const page = JSON.parse(document.getElementById('page').textContent);

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// Typed arrays by name, decoded on first use.
const decoded = {};
function tensor(name) {
  if (decoded[name]) return decoded[name];
  const about = page.tensors[name];
  const block = about && document.getElementById('data-' + name);
  if (!block || (about.late && document.readyState === 'loading')) return null;
  const bytes = bytesOf(block.textContent.trim());
  block.remove();
  const values = READERS[about.dtype](bytes, about);
  return (decoded[name] = { shape: about.shape, values, rounded: about.dtype === 'log16' });
}

const READERS = {
  f32: (bytes) => new Float32Array(bytes.buffer),
  i32: (bytes) => new Int32Array(bytes.buffer),
  u24: unpackU24,
  log16: unpackLog16,
};

// Three bytes per number; all bits set mean -1.
function unpackU24(bytes) {
  const values = new Int32Array(bytes.length / 3);
  for (let i = 0; i < values.length; i++) {
    const value = bytes[3 * i] | bytes[3 * i + 1] << 8 | bytes[3 * i + 2] << 16;
    values[i] = value === 0xffffff ? -1 : value;
  }
  return values;
}

// 16 bits a number, evenly spaced in its logarithm. 0 is zero, 65534 is NaN, 65535 is a masked cell and is followed by
// its repeat count.
const LOG16_MASKED = 65535;
const LOG16_NAN = 65534;
function unpackLog16(bytes, { low, step, shape }) {
  const codes = new Uint16Array(bytes.buffer);
  const table = new Float32Array(65536);
  for (let code = 1; code < LOG16_NAN; code++) table[code] = Math.exp(low + (code - 1) * step);
  table[LOG16_NAN] = NaN;
  const values = new Float32Array(shape.reduce((count, size) => count * size, 1));
  for (let i = 0, to = 0; i < codes.length; i++) {
    if (codes[i] === LOG16_MASKED) values.fill(-Infinity, to, to += codes[++i]);
    else values[to++] = table[codes[i]];
  }
  return values;
}

// One matrix of a tensor [H, rows, columns] or [rows, columns].
function matrixOf(whole, head = 0) {
  const [rows, columns] = whole.shape.slice(-2);
  const from = whole.shape.length > 2 ? head * rows * columns : 0;
  return { rows, columns, rounded: whole.rounded, values: whole.values.subarray(from, from + rows * columns) };
}

const at = (matrix, row, column) => matrix.values[row * matrix.columns + column];
const rowOf = (matrix, row) => matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low && value > -Infinity) low = value;
    if (value > high && value < Infinity) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

const minus = (text) => text.replace('-', '−');

// Four decimals, as the command prints.
function exact(value) {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value < 0 ? '−∞' : '∞';
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 5e-5)) return minus(value.toExponential(2));
  return minus(value.toFixed(4));
}

// Shows the digits that the page holds: 16-bit numbers are exact to three.
const written = (value, rounded) => (rounded ? short(value) : exact(value));

// Formats with three digits, for labels.
function short(value) {
  if (!Number.isFinite(value)) return exact(value);
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return minus(value.toExponential(2).replace(/\.?0+e/, 'e'));
  return minus(String(Number(value.toPrecision(3))));
}

// Formats for a cell: 0.60, 12.3.
function tiny(value) {
  if (!Number.isFinite(value)) return exact(value);
  const size = Math.abs(value);
  return minus(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/^-(?=0(\.0*)?$)/, ''));
}

// Formats a factor in a product.
const factor = (value) => (value < 0 ? `(${exact(value)})` : exact(value));

// A token as text, by the rules of the command's token_text(). Tabs, line ends, and spaces at the token's ends become
// signs. Other white space at the ends, and control and direction characters, are spelled out. A token of white space
// alone, or an empty one, stands in quotes.
const SIGNS = { ' ': '␣', '\t': '⇥', '\n': '⏎', '\r': '␍' };
const UNSEEN = '[\\t\\n\\r \\u00a0\\u1680\\u2000-\\u200d\\u202f\\u205f\\u2060\\u3000]';
const EDGES = new RegExp(`^${UNSEEN}+|${UNSEEN}+$`, 'g');
const ALL_UNSEEN = new RegExp(`^${UNSEEN}*$`);
function signOf(letter) {
  const code = letter.charCodeAt(0).toString(16).toUpperCase();
  return SIGNS[letter] || (code.length > 2 ? `\\u{${code.padStart(4, '0')}}` : `\\x${code.padStart(2, '0')}`);
}
function tokenText(token) {
  const text = token.replace(EDGES, (run) => [...run].map(signOf).join(''))
    .replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, signOf);
  return ALL_UNSEEN.test(token) ? `"${text}"` : text;
}

// A word within a line. Without these marks, two right-to-left words would change places, and an arrow its direction.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const isolated = (word) => (RIGHT_TO_LEFT.test(word) ? `\u2068${word}\u2069` : word);

// Labels that distinguish repeated words: the₁, the₂, …
function labelsOf(words) {
  const count = new Map();
  for (const word of words) count.set(word, (count.get(word) || 0) + 1);
  const seen = new Map();
  const digits = '₀₁₂₃₄₅₆₇₈₉';
  return words.map((word) => {
    if (count.get(word) === 1) return tokenText(word);
    seen.set(word, (seen.get(word) || 0) + 1);
    return tokenText(word) + [...String(seen.get(word))].map((digit) => digits[digit]).join('');
  });
}
const queryWords = labelsOf(page.query_tokens);
const keyWords = labelsOf(page.key_tokens);

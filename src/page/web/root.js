// The lesson of √d with vectors drawn at random, whose numbers have mean 0 and variance 1. It holds for any sentence.
const ROOT_SIZES = [1, 4, 16, 64, 256];
const ROOT_QUERIES = 300;
const ROOT_KEYS = 6;

// The largest share in the softmax of these scores.
const largestShare = (scores) => 1 / scores.reduce((sum, score) => sum + Math.exp(score - Math.max(...scores)), 0);
const wholeMean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
function spread(values) {
  const mean = wholeMean(values);
  return Math.sqrt(wholeMean(values.map((value) => (value - mean) ** 2)));
}

// Xorshift with 32 bits (Marsaglia 2003), made normal by Box and Muller's formula.
function normals() {
  let seed = 2463534242;
  const uniform = () => {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    return (seed >>> 0) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

// For each d: the spread of q · k, and the mean over the queries of the largest share and of its slope w (1 − w).
let rootRows = null;
function drawnScores() {
  if (rootRows) return rootRows;
  const normal = normals();
  const vector = (d) => Float64Array.from({ length: d }, normal);
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  rootRows = ROOT_SIZES.map((d) => {
    const all = Array.from({ length: ROOT_QUERIES }, () => {
      const query = vector(d);
      return Array.from({ length: ROOT_KEYS }, () => dot(query, vector(d)));
    });
    const meanOf = (by) => {
      const shares = all.map((scores) => largestShare(scores.map((score) => score / by)));
      return { share: wholeMean(shares), slope: wholeMean(shares.map((share) => share * (1 - share))) };
    };
    return { d, spread: spread(all.flat()), raw: meanOf(1), scaled: meanOf(Math.sqrt(d)) };
  });
  return rootRows;
}

function rootCard() {
  const heading = (...text) => element('th', { scope: 'col' }, text);
  const shares = ({ share, slope }) => [element('td', {}, tiny(share), bar(share)), element('td', {}, tiny(slope))];
  return element('article', { class: 'card', 'data-step': 'root' },
    element('header', {}, element('h3', {}, 'the same with random vectors')),
    element('p', { class: 'meaning' }, `${ROOT_QUERIES} queries with ${ROOT_KEYS} keys each, drawn with mean 0 and variance 1`),
    element('table', { class: 'root-table' },
      element('thead', {},
        element('tr', {}, element('td'), element('td'), element('th', { colspan: 2, scope: 'colgroup' }, 'softmax of q · k'),
          element('th', { colspan: 2, scope: 'colgroup' }, 'of q · k / √d')),
        element('tr', {}, heading('d'), heading('q · k spreads by'), heading('largest w'), heading('slope'), heading('largest w'), heading('slope'))),
      element('tbody', {}, drawnScores().map((row) => element('tr', {}, element('th', { scope: 'row' }, String(row.d)),
        element('td', {}, tiny(row.spread)), shares(row.raw), shares(row.scaled))))));
}

// The result of a check in f64 (`heed look --proof`): a badge beside the title, with details on a click.
const BYTES = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
function sizeText(bytes) {
  let unit = 0;
  while (bytes >= 999.5 && unit < BYTES.length - 1) [bytes, unit] = [bytes / 1000, unit + 1];
  return `${Number(bytes.toPrecision(3))} ${BYTES[unit]}`;
}
const deviationText = (value) => (value === null ? 'no number' : minus(value === 0 ? '0' : value.toExponential(1).replace('.0e', 'e')));

// The badge's text, and whether the check passed.
function verdictOf(proof) {
  const worst = proof.lines.find((line) => !line.holds);
  if (worst) return [false, `mismatch: ${worst.what} is off by ${deviationText(worst.deviation)}, at most ` +
    `${deviationText(worst.allowed)} is allowed`];
  if (proof.rows === 0) return [false, 'not checked: no row could be compared'];
  const largest = deviationText(Math.max(...proof.lines.map((line) => line.deviation)));
  const size = sizeText(proof.matrix_bytes);
  return [true, `exact: largest deviation ${largest}` + (holdsMatrix() ? '' : ` of ${size} never stored`)];
}
const holdsMatrix = () => Boolean(steps.weights) || report.tiles.some((tile) => tile.row_begin === 0 && tile.key_begin === 0 &&
  tile.row_end === page.query_count && tile.key_end === page.key_count);

function proofDetails(proof) {
  const compared = [counted(proof.rows, 'row'), proof.keys && counted(proof.keys, 'key'),
    proof.bins && counted(proof.bins, 'bin') + ' of the map'].filter(Boolean).join(', ');
  const apart = [proof.nan_rows && `${counted(proof.nan_rows, 'row')} of NaN`,
    proof.lost_rows && `${counted(proof.lost_rows, 'row')} with scores too large to compare after rounding`]
    .filter(Boolean).join(' and ');
  return element('div', { class: 'proof-details' },
    element('p', {}, `${compared} were computed again in f64 from the formulas, one score at a time, without the kernels or ` +
      `their sums. A deviation is relative to the size of the compared value.`),
    apart && element('p', {}, `Not compared: ${apart}.`),
    proof.bare_heads.length > 0 && element('p', {}, `Without a row that could be compared: ${proof.bare_heads
      .map(([entry, head]) => headName(entry * report.heads + head)).join('; ')}.`),
    element('table', {}, element('thead', {}, element('tr', {}, ['what', 'deviation', 'at most', ''].map((title) =>
      element('th', { scope: 'col' }, title)))),
    element('tbody', {}, proof.lines.map(({ what, deviation, allowed, holds }) => element('tr', { class: holds ? '' : 'off' },
      element('th', { scope: 'row' }, what), element('td', {}, deviationText(deviation)), element('td', {}, deviationText(allowed)),
      element('td', {}, holds ? 'holds' : 'mismatch'))))));
}

function showProof(host) {
  if (!page.proof) return;
  const [holds, words] = verdictOf(page.proof);
  host.append(element('details', { class: holds ? 'proof' : 'proof off' },
    element('summary', {}, element('span', { 'aria-hidden': 'true' }, holds ? '✓' : '✗'), ' ', words), proofDetails(page.proof)));
}

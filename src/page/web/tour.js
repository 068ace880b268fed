// A guided zoom into a long text: from the whole map to the parts that stand out, with a sentence at each stop, and
// back.
const MOST_PEAKS = 3;
const LEAST_LIFT = 2;         // as a multiple of the share of even weights
const PEAK_SHARE = 0.1;       // as a share of the best rank; lower peaks do not stand out
const APART = 0.12;           // minimum distance of two peaks, as a share of the map
const NEAR_DIAGONAL = 2.5;    // bins
const REGION_BINS = 36;       // shown around a peak
const CLOSE_CELLS = 24;       // shown around a cell, or bins where the page holds no single weights
const TRAVEL = 900;           // milliseconds

let tour = null;  // {head, stops, at}

// The diagonal: the key at row 0's own position, by the call's options.
function diagonalKey() {
  const options = Object.fromEntries(report.options);
  if (options['query-offset'] !== undefined) return Number(options['query-offset']);
  return options.align === 'bottom-right' ? page.key_count - page.query_count : 0;
}

// The share that a bin would have in a row that spreads its weight evenly over the keys that it may see.
function evenShare(level, row) {
  const causal = report.options.some(([name]) => name === 'causal');
  return Math.min(1, level.keyStep / (causal ? Math.max(1, Math.min(page.key_count, row + diagonalKey() + 1)) : page.key_count));
}

// The bins of a level that stand out, apart from each other, and away from the diagonal and the first key. They have a
// large share of their rows, and far more than an even share, which is large in a text's first rows.
function peaksOf(level) {
  const diagonal = page.cross ? -Infinity : diagonalKey();
  const near = NEAR_DIAGONAL * Math.max(level.rowStep, level.keyStep);
  const found = [];
  for (let r = 0; r < level.rows; r++)
    for (let c = 1; c < level.columns; c++) {
      const share = level.values[r * level.columns + c];
      const [row, key] = [(r + 0.5) * level.rowStep, (c + 0.5) * level.keyStep];
      if (!(share > 0) || Math.abs(row + diagonal - key) < near) continue;
      const lift = share / evenShare(level, row);
      if (lift >= LEAST_LIFT) found.push({ share, lift, rank: share * Math.log(lift), r, c, row, key });
    }
  found.sort((a, b) => b.rank - a.rank);
  const peaks = [];
  for (const peak of found) {
    if (peaks.length === MOST_PEAKS || peak.rank < PEAK_SHARE * found[0].rank) break;
    if (peaks.every(({ row, key }) => Math.max(Math.abs(row - peak.row) / page.query_count,
      Math.abs(key - peak.key) / page.key_count) >= APART)) peaks.push(peak);
  }
  return peaks;
}

// A bin's rows or keys, [from, to).
const binEdges = (bin, step, count) => [bin * step, Math.min(count, (bin + 1) * step)].map((edge) => Math.ceil(edge - 1e-6));
const rangeOf = ([from, to]) => ({ many: to - from > 1, text: to - from > 1 ? `${spelled(from)} to ${spelled(to - 1)}` : spelled(from) });
const percent = (share) => `${Number((100 * share).toPrecision(2))} %`;
const around = (row, key, high, wide) => within([row - high / 2, row + high / 2, key - wide / 2, key + wide / 2]);

// The strongest weight of a bin off the diagonal, from the server, else from the keys that the page holds for each row.
async function strongestIn(head, peak, level) {
  const [r0, r1] = binEdges(peak.r, level.rowStep, page.query_count);
  const [k0, k1] = binEdges(peak.c, level.keyStep, page.key_count);
  let best = null;
  const take = (row, key, weight) => { if (weight > (best?.weight ?? 0)) best = { row, key, weight }; };
  if (isServed() && (r1 - r0) * (k1 - k0) <= LONGEST_ROW) {
    const edges = [r0, r1, k0, k1];
    try {
      const numbers = await numbersAt(addressOf(head, edges, 1), countOf(edges, 1));
      numbers.forEach((weight, i) => take(r0 + Math.floor(i / (k1 - k0)), k0 + i % (k1 - k0), weight));
    } catch { /* what the page holds is shown */ }
  }
  for (let row = r0; row < r1 && !best; row++)
    for (const [key, weight] of topOf(head, row, 64)) if (key >= k0 && key < k1) take(row, key, weight);
  return best;
}

function wholeStop(level) {
  const cells = page.query_count * page.key_count;
  return { seen: wholeMap(), text: `The whole map: ${spelled(page.query_count)} rows by ${spelled(page.key_count)} keys, ` +
    `${sizeWord(cells)} weights in ${headName(state.head)}. A bin sums some ${Math.round(level.rowStep)} × ${
      Math.round(level.keyStep)} of them.` };
}
function sizeWord(count) {
  for (const [size, name] of [[1e12, 'trillion'], [1e9, 'billion'], [1e6, 'million']])
    if (count >= size) return `${Number((count / size).toPrecision(2))} ${name}`;
  return spelled(count);
}

const distanceOf = ({ row, key }) => Math.round(row + diagonalKey() - key);
function distanceText(distance) {
  if (page.cross) return '';
  return distance > 0 ? `, ${spelled(distance)} places back` : `, ${spelled(-distance)} places ahead`;
}

function peakStop(peak, n, peaks, level) {
  const rows = rangeOf(binEdges(peak.r, level.rowStep, page.query_count));
  const keys = rangeOf(binEdges(peak.c, level.keyStep, page.key_count));
  const alike = n > 0 && !page.cross && Math.abs(distanceOf(peak) - distanceOf(peaks[0])) <= level.keyStep;
  const why = n === 0 ? 'Apart from the diagonal and the first key, this stands out most'
    : alike ? 'It is about as far back as the first: both may lie on one line beside the diagonal' : 'Next to that, this stands out most';
  return { row: Math.floor(peak.row), key: Math.floor(peak.key),
    seen: around(peak.row, peak.key, REGION_BINS * level.rowStep, REGION_BINS * level.keyStep),
    text: `${rows.many ? 'Rows' : 'Row'} ${rows.text} ${rows.many ? 'give' : 'gives'} ${percent(peak.share)} of ${rows.many ? 'their'
      : 'its'} weight to ${keys.many ? 'keys' : 'key'} ${keys.text}${distanceText(distanceOf(peak))}: ` +
      `${spelled(Number(peak.lift.toPrecision(2)))} times an even share. ${why}.` };
}

function cellStop({ row, key, weight }, level) {
  const name = (words, place, kind) => (words.length ? `“${isolated(words[place])}” (${kind} ${spelled(place)})` : `${kind} ${spelled(place)}`);
  const text = `${name(queryWords, row, 'row')} gives ${short(weight)} to ${name(keyWords, key, 'key')}: ` +
    'the strongest single weight in that bin.';
  const single = isServed() || tilesOf(state.head).some((tile) => row >= tile.row_begin && row < tile.row_end && key >= tile.key_begin &&
    key < tile.key_end);
  const [high, wide] = single ? [1, 1] : [level.rowStep, level.keyStep];
  return { row, key, seen: around(row, key, CLOSE_CELLS * high, CLOSE_CELLS * wide), text: text[0].toUpperCase() + text.slice(1) };
}

async function stopsOf(head) {
  const level = levelOf(head, 0);
  const peaks = peaksOf(level);
  const stops = [wholeStop(level)];
  for (const [n, peak] of peaks.entries()) {
    stops.push(peakStop(peak, n, peaks, level));
    const cell = await strongestIn(head, peak, level);
    if (cell) stops.push(cellStop(cell, level));
  }
  if (!peaks.length) stops[0].text += ' Nothing else stands out from the diagonal and the first key.';
  stops.push({ seen: wholeMap(), text: 'The whole map again. Plus and minus zoom, dragging moves, a click chooses a place, and ' +
    'the address of the page keeps it.' });
  return stops;
}

// Only long texts need a zoom; others are shown cell by cell.
const hasTour = () => Boolean(report) && page.query_count > 4 * REGION_BINS && pyramidOf(state.head)?.[0].rowStep > 1;

async function startTour() {
  const { head } = state;
  const stops = await stopsOf(head);
  if (head !== state.head) return;
  tour = { head, stops, at: 0 };
  showStop();
  tourNode.scrollIntoView({ block: 'start', behavior: wantsStillness() ? 'auto' : 'smooth' });
}

function endTour() {
  tour = null;
  travel = 0;
  showTourBar();
  document.querySelector('.tour button')?.focus();
}

function showStop() {
  const stop = tour.stops[tour.at];
  if (stop.row !== undefined) choose({ row: stop.row, key: stop.key });
  travelTo(stop.seen);
  showTourBar();
  tell(stop.text);
}

const wantsStillness = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
// Glides from one part of the map to another, or jumps if the reader prefers less motion.
let travel = 0;
function travelTo(to) {
  const mine = ++travel;
  const { picture } = mapView;
  const arrive = () => { picture.show(to); picture.keep(); };
  if (wantsStillness()) return arrive();
  const from = picture.seen;
  const begin = performance.now();
  const step = (now) => {
    if (mine !== travel || mapView.picture !== picture) return;
    const share = Math.min(1, (now - begin) / TRAVEL);
    if (share === 1) return arrive();
    picture.show(between(from, to, share * share * (3 - 2 * share)));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

// An intermediate part of the map: sizes change by equal factors, around the middle of the nearer part.
function between(from, to, share) {
  const side = (a, b, c, d) => {
    const size = (b - a) ** (1 - share) * (d - c) ** share;
    const way = Math.abs(b - a - (d - c)) < 1e-6 ? share : (b - a - size) / (b - a - (d - c));
    return [a + (c - a) * way, b + (d - b) * way];
  };
  return [...side(from[0], from[1], to[0], to[1]), ...side(from[2], from[3], to[2], to[3])];
}

const tourNode = element('section', { class: 'tour', 'aria-label': 'Guided zoom' });
tourNode.addEventListener('keydown', (event) => {
  if (!tour || event.key !== 'Escape') return;
  event.stopPropagation();
  endTour();
});
function showTourBar() {
  if (tour && tour.head !== state.head) tour = null;
  const button = (label, act, off = false) => element('button', { type: 'button', disabled: off, onclick: act }, label);
  const go = (by) => () => { tour.at += by; showStop(); };
  const focused = tourNode.contains(document.activeElement) ? document.activeElement.textContent : '';
  if (!tour) tourNode.replaceChildren(button('Show me what stands out', startTour));
  else {
    const last = tour.at === tour.stops.length - 1;
    tourNode.replaceChildren(element('p', {}, tour.stops[tour.at].text), element('div', { class: 'tour-buttons' },
      element('span', { class: 'soft' }, `${tour.at + 1} of ${tour.stops.length}`), button('Back', go(-1), tour.at === 0),
      last ? button('Done', endTour) : button('Next', go(1)), !last && button('Stop', endTour)));
  }
  tourNode.hidden = !hasTour();
  if (focused) (([...tourNode.querySelectorAll('button')].find((one) => one.textContent === focused && !one.disabled)) ||
    tourNode.querySelector('button:nth-of-type(2)') || tourNode.querySelector('button'))?.focus();
}
// The button or the current stop, for the map's card.
function tourBar() {
  showTourBar();
  return tourNode;
}

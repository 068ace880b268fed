// Numbers that the page lacks, fetched from its server (`heed look --serve`): whole rows, and finer bins and single
// weights of the visible part of the map. A page in a file has no server.
//
// The matrix is cut into tiles whose bins have 1, 2, 4, … rows and keys. Fetched numbers are cached, and the least
// recently used are dropped first. Requests that are no longer needed are cancelled.
const TILE_BINS = 256;             // per side, at most
const TILE_CELLS = 4096;           // weights per side, at most: a tenth of a second
const MOST_IN_SIGHT = 2 ** 26;     // visible weights that are summed anew; the page's own bins serve larger parts
const MOST_AHEAD = 2 ** 23;        // weights up to which the surrounding tiles are fetched, too
const LONGEST_ROW = 2 ** 20;       // weights that the server sends at once
const MOST_TOP = 64;               // keys per row, the heaviest first
const MOST_KEPT = 96e6;            // bytes
const MOST_AT_ONCE = 2;            // requests: the server computes one at a time
const REST = 120;                  // milliseconds without a change before a request
const TRY_AGAIN = 5000;            // milliseconds after a request without an answer

const isServed = () => Boolean(page.served) && location.protocol.startsWith('http');

const kept = new Map();  // address -> numbers, the least recently used first
let keptBytes = 0;
function keptAt(address) {
  const numbers = kept.get(address);
  if (!numbers) return null;
  kept.delete(address);
  kept.set(address, numbers);
  return numbers;
}
function keep(address, numbers) {
  kept.set(address, numbers);
  keptBytes += numbers.byteLength;
  for (const [oldest, { byteLength }] of kept) {
    if (keptBytes <= MOST_KEPT || oldest === address) break;
    kept.delete(oldest);
    keptBytes -= byteLength;
  }
}

const addressOf = (head, [r0, r1, k0, k1], step) => `tile?head=${head}&rows=${r0}:${r1}&keys=${k0}:${k1}&step=${step}`;
const countOf = ([r0, r1, k0, k1], step) => Math.ceil((r1 - r0) / step) * Math.ceil((k1 - k0) / step);

// The requests of one kind: what is visible now, the most urgent first.
class Wanted {
  constructor() {
    this.list = [];
    this.asked = new Map();  // address -> function that cancels the request
    this.failed = '';        // why the last request had no answer
    this.quietUntil = 0;     // no requests until this time, after a failure
    this.timer = 0;
  }

  // pieces: [[address, count of its numbers], …]; replaces the previous list.
  want(pieces) {
    this.list = performance.now() < this.quietUntil ? [] : pieces.filter(([address]) => !kept.has(address));
    for (const [address, cancel] of this.asked)
      if (!this.list.some(([wanted]) => wanted === address)) cancel.abort();
    clearTimeout(this.timer);
    if (this.list.length) this.timer = setTimeout(() => this.askNext(), REST);
  }

  askNext() {
    for (const [address, count] of this.list)
      if (this.asked.size < MOST_AT_ONCE && !this.asked.has(address)) this.ask(address, count);
  }

  async ask(address, count) {
    const cancel = new AbortController();
    this.asked.set(address, cancel);
    try {
      const numbers = await numbersAt(address, count, cancel.signal);
      keep(address, numbers);
      this.failed = '';
    } catch (error) {
      if (cancel.signal.aborted) return this.asked.delete(address) && this.askNext();
      this.failed = error.message;
      this.quietUntil = performance.now() + TRY_AGAIN;
      this.list = [];
    }
    this.asked.delete(address);
    this.list = this.list.filter(([wanted]) => wanted !== address);
    arrived();
    this.askNext();
  }
}

// The numbers of one answer. Throws the message to show if there is no answer.
async function numbersAt(address, count, signal) {
  let answer;
  try {
    answer = await fetch(address, { signal, credentials: 'omit', redirect: 'error' });
  } catch {
    throw new Error('The server no longer answers: heed look --serve has ended.');
  }
  if (!answer.ok) throw new Error(`The server refused: ${(await answer.text()).trim()}`);
  const bytes = await answer.arrayBuffer();
  if (bytes.byteLength !== 4 * count) throw new Error('The server sent a different number of weights than requested.');
  return new Float32Array(bytes);
}

const wantedRows = new Wanted();
const wantedTiles = new Wanted();

// Redraws with new answers, once per frame.
let arrival = 0;
function arrived() {
  arrival ||= requestAnimationFrame(() => {
    arrival = 0;
    if (shownView === mapView) mapView.picture.repaint();
    refresh();
  });
}

const rowAddress = (head, row) => addressOf(head, [row, row + 1, 0, page.key_count], 1);
// A row's weights, if they have been fetched.
const fetchedRow = (head, row) => (isServed() ? keptAt(rowAddress(head, row)) : null);
function wantRow(head, row) {
  if (!isServed() || page.key_count > LONGEST_ROW || hasEveryWeight(head)) return;
  wantedRows.want([[rowAddress(head, row), page.key_count]]);
}
// The heaviest keys of such a row, in the form of topOf().
const orders = new WeakMap();
function fetchedTop(head, row, count) {
  const weights = hasEveryWeight(head) ? null : fetchedRow(head, row);
  if (!weights) return null;
  if (!orders.has(weights)) {
    const some = Array.from(weights.keys()).filter((key) => weights[key] > 0);
    orders.set(weights, some.sort((a, b) => weights[b] - weights[a] || a - b).slice(0, MOST_TOP));
  }
  return orders.get(weights).slice(0, count).map((key) => [key, weights[key], false]);
}
const hasEveryWeight = (head) => pyramidOf(head)?.[0].rowStep === 1 && pyramidOf(head)[0].keyStep === 1;

// The tile around a place, cut at the matrix's end.
const tileSide = (step) => Math.max(step, Math.min(TILE_BINS * step, TILE_CELLS));
function tileAt(row, key, step) {
  const side = tileSide(step);
  const from = (place) => Math.floor(place / side) * side;
  return [from(row), Math.min(from(row) + side, page.query_count), from(key), Math.min(from(key) + side, page.key_count)];
}

function fetchedWeight(head, row, key) {
  if (!isServed()) return null;
  const all = fetchedRow(head, row);
  if (all) return all[key];
  const tile = tileAt(row, key, 1);
  const numbers = keptAt(addressOf(head, tile, 1));
  return numbers ? numbers[(row - tile[0]) * (tile[3] - tile[2]) + key - tile[2]] : null;
}

// The tiles that cover a part of the map, from its middle outwards.
function tilesOver([r0, r1, k0, k1], step) {
  const side = tileSide(step);
  const tiles = [];
  for (let row = Math.floor(r0 / side) * side; row < r1; row += side)
    for (let key = Math.floor(k0 / side) * side; key < k1; key += side) tiles.push(tileAt(row, key, step));
  const off = ([a, b, c, d]) => Math.hypot(a + b - r0 - r1, c + d - k0 - k1);
  return tiles.sort((a, b) => off(a) - off(b));
}

const wholeEdges = ([r0, r1, k0, k1]) => [Math.max(0, Math.floor(r0)), Math.min(page.query_count, Math.ceil(r1)),
  Math.max(0, Math.floor(k0)), Math.min(page.key_count, Math.ceil(k1))];

// The level of the visible part from the server's numbers, with bins of at least a pixel. There is none if the page's
// own level is as fine, if it needs too much computation, or until it has arrived.
function fetchedLevel(head, seen, rowsAPixel, keysAPixel, held) {
  const edges = wholeEdges(seen);
  const cells = (edges[1] - edges[0]) * (edges[3] - edges[2]);
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.min(rowsAPixel, keysAPixel) * 0.999)));
  if (!isServed() || hasEveryWeight(head)) return null;
  if (cells > MOST_IN_SIGHT || step >= Math.min(held.rowStep, held.keyStep)) {
    wantedTiles.want([]);
    return null;
  }
  const [high, wide] = [(seen[1] - seen[0]) / 2, (seen[3] - seen[2]) / 2];
  const ahead = cells > MOST_AHEAD ? [] : tilesOver(wholeEdges([seen[0] - high, seen[1] + high, seen[2] - wide, seen[3] + wide]), step);
  const tiles = tilesOver(edges, step);
  wantedTiles.want([...new Map([...tiles, ...ahead].map((tile) => [addressOf(head, tile, step), countOf(tile, step)]))]);
  const pieces = tiles.map((tile) => [tile, keptAt(addressOf(head, tile, step))]);
  if (pieces.some(([, numbers]) => !numbers)) return null;
  return assembled(head, pieces, step);
}

// Adjacent tiles as one level, which need not begin at row 0, key 0.
let lastAssembled = null;
function assembled(head, pieces, step) {
  const name = [head, step, ...pieces.map(([tile]) => tile.join())].join();
  if (lastAssembled?.name === name) return lastAssembled;
  const edge = (i, pick) => pick(...pieces.map(([tile]) => tile[i]));
  const [r0, r1, k0, k1] = [edge(0, Math.min), edge(1, Math.max), edge(2, Math.min), edge(3, Math.max)];
  const [rows, columns] = [Math.ceil((r1 - r0) / step), Math.ceil((k1 - k0) / step)];
  const values = new Float32Array(rows * columns);
  for (const [[t0, t1, u0, u1], numbers] of pieces) {
    const wide = Math.ceil((u1 - u0) / step);
    for (let row = 0; row < Math.ceil((t1 - t0) / step); row++) {
      const to = ((t0 - r0) / step + row) * columns + (u0 - k0) / step;
      const count = Math.min(step, t1 - t0 - row * step);  // rows of the bin
      for (let i = 0; i < wide; i++) values[to + i] = numbers[row * wide + i] / count;
    }
  }
  return (lastAssembled = { name, rows, columns, values, sums: values, rowStep: step, keyStep: step, rowBegin: r0, keyBegin: k0 });
}

// The server's state, shown below the map: that it computes, or why it does not.
function serverNote() {
  if (!isServed()) return '';
  const failed = wantedTiles.failed || wantedRows.failed;
  if (failed) return failed;
  const left = wantedTiles.list.length;
  return left ? `computing ${left} more ${left === 1 ? 'piece' : 'pieces'} …` : '';
}

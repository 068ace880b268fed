// The weights of a head at every size: the finest matrix that the page holds, and levels that each sum 2 x 2 bins of
// the previous level. A bin's colour is the share that its rows give to its keys, on average.
const report = page.report;
const heads = report ? report.summaries : [];

// The map's head: the chosen one, or its difference from another one, "3-5".
function shownMap() {
  const other = subtractedHead();
  return other === null || other === state.head ? state.head : `${state.head}-${other}`;
}
// The head that the state asks to subtract: "same" is the same head of the document beside.
function subtractedHead() {
  if (state.minus === 'none') return null;
  if (state.minus !== 'same') return Number(state.minus);
  return state.head + (state.head % report.heads < page.beside ? page.beside : -page.beside);
}
const isDifference = (head) => typeof head === 'string';

// Masked in one head: masked in the difference.
function differenceOf(head) {
  const [a, b] = head.split('-').map((one) => pyramidOf(Number(one))?.[0]);
  if (!a || !b) return null;
  const values = a.sums.map((sum, i) => (isMasked(sum) || isMasked(b.sums[i]) ? -Infinity : sum - b.sums[i]));
  return { rows: a.rows, columns: a.columns, values, rounded: a.rounded || b.rounded, signed: true };
}

// The finest matrix of a head: all weights if the page has them, else the map. None until it is loaded.
function finestOf(head) {
  if (isDifference(head)) return differenceOf(head);
  if (steps.weights) return drawnMatrix('weights', head);
  const whole = report.tiles.find((tile) => tile.head === head && tile.row_begin === 0 && tile.key_begin === 0 &&
    tile.row_end === page.query_count && tile.key_end === page.key_count);
  const found = tensor(whole ? whole.tensor : 'map-' + head);
  return found && matrixOf(found);
}

// A level has the sums of its bins, and in `values` the share that the bin's rows give to its keys, on average. A bin
// covers `factor` x `factor` bins of the finest level, whose bin r of R holds the rows i with floor(i R / Lq) = r.
function makeLevel(sums, rows, columns, factor, [fineRows, fineColumns]) {
  const first = (bin) => Math.ceil(Math.min(bin * factor, fineRows) * page.query_count / fineRows);
  const level = { rows, columns, factor, sums, values: sums, first, rowStep: factor * page.query_count / fineRows,
    keyStep: factor * page.key_count / fineColumns };
  if (level.rowStep === 1) return level;
  level.values = new Float32Array(sums.length);
  for (let row = 0; row < rows; row++) {
    const count = Math.max(1, first(row + 1) - first(row));
    for (let i = row * columns; i < (row + 1) * columns; i++) level.values[i] = sums[i] / count;
  }
  return level;
}

// Masked bins add nothing; four of them make a masked bin.
function pooled(fine) {
  const rows = Math.ceil(fine.rows / 2);
  const columns = Math.ceil(fine.columns / 2);
  const sums = new Float32Array(rows * columns).fill(-Infinity);
  for (let row = 0; row < fine.rows; row++) {
    const to = (row >> 1) * columns;
    const from = row * fine.columns;
    for (let column = 0; column < fine.columns; column++) {
      const value = fine.sums[from + column];
      if (value === -Infinity) continue;
      const place = to + (column >> 1);
      sums[place] = (sums[place] === -Infinity ? 0 : sums[place]) + value;
    }
  }
  return { rows, columns, sums };
}

const pyramids = {};
function pyramidOf(head) {
  if (pyramids[head]) return pyramids[head];
  const finest = finestOf(head);
  if (!finest) return null;
  const { rows, columns, values, rounded, signed } = finest;
  return (pyramids[head] = [{ ...makeLevel(values, rows, columns, 1, [rows, columns]), rounded, signed }]);
}

function levelOf(head, n) {
  const levels = pyramidOf(head);
  while (levels.length <= n && levels.at(-1).values.length > 1) {
    const { rows, columns, sums } = pooled(levels.at(-1));
    const level = makeLevel(sums, rows, columns, 2 ** levels.length, [levels[0].rows, levels[0].columns]);
    levels.push({ ...level, signed: levels[0].signed });
  }
  return levels[Math.min(n, levels.length - 1)];
}

// The coarse map of a head, available before the fine one.
const thumbs = {};
function thumbOf(head) {
  const held = report.thumb && tensor('thumb-' + head);
  if (!held) return null;
  const { rows, columns, values } = matrixOf(held);
  return (thumbs[head] ??= makeLevel(values, rows, columns, report.thumb, [report.map_rows, report.map_columns]));
}

// The finest level whose bins are at least one pixel wide and high.
function levelFor(head, rowsAPixel, keysAPixel) {
  let n = 0;
  for (let level = levelOf(head, 0); level.rowStep < rowsAPixel * 0.999 || level.keyStep < keysAPixel * 0.999;) {
    const next = levelOf(head, ++n);
    if (next === level) break;
    level = next;
  }
  return levelOf(head, n);
}

// Differences of single weights that are small stay pale.
const LEAST_DIFFERENCE = 0.1;
function differenceScale({ values, rowStep, keyStep }) {
  return signedScale(rowStep > 1 || keyStep > 1 ? values : [...extent(values), LEAST_DIFFERENCE]);
}

// The colour scale of a level; bins and single weights each have their own.
function shareScale(level) {
  const key = [state.scaled, state.log].join();
  if (level.scaleKey !== key)
    Object.assign(level, { scale: level.signed ? differenceScale(level) : weightScale([level]), scaleKey: key });
  return level.scale;
}

// A level as an image with one pixel per bin, cached until the colours change.
function imageOf(level) {
  const scale = shareScale(level);
  const key = [state.colours, themeColour('surface'), level.scaleKey].join();
  if (level.key !== key) {
    level.image = pixelsOf(level, scale);
    level.key = key;
  }
  return level.image;
}

// The pieces of the matrix that the page holds in full, in addition to the map.
function tilesOf(head) {
  if (steps.weights || isDifference(head)) return [];
  return report.tiles.filter((tile) => tile.head === head && !(tile.row_end - tile.row_begin === page.query_count &&
    tile.key_end - tile.key_begin === page.key_count)).map((tile) => {
    const found = tensor(tile.tensor);
    if (!found) return null;
    const matrix = matrixOf(found);
    tile.level ??= { ...matrix, rowStep: 1, keyStep: 1, keyBegin: tile.key_begin };
    return { ...tile, level: tile.level };
  }).filter(Boolean);
}

// The weight of one row on one key: a number, -Infinity for a masked key, null where the page lacks it.
function weightAt(head, row, key) {
  if (isDifference(head)) {
    const [a, b] = head.split('-').map((one) => weightAt(Number(one), row, key));
    return a === null || b === null ? null : isMasked(a) || isMasked(b) ? -Infinity : a - b;
  }
  const levels = pyramidOf(head);
  if (levels && levels[0].rowStep === 1 && levels[0].keyStep === 1) return at(levels[0], row, key);
  const held = tilesOf(head).find((tile) => row >= tile.row_begin && row < tile.row_end && key >= tile.key_begin &&
    key < tile.key_end);
  return held ? at(held.level, row - held.row_begin, key - held.key_begin) : fetchedWeight(head, row, key);
}

function weightText(head, row, key) {
  const weight = weightAt(head, row, key);
  if (weight === null) return null;
  if (isDifference(head) && !isMasked(weight)) {
    const [a, b] = head.split('-').map((one) => weightText(Number(one), row, key));
    return `${a} − ${b} = ${exact(weight)}`;
  }
  if (isMasked(weight)) return 'masked';
  return written(weight, fetchedWeight(head, row, key) === null && (pyramidOf(head)[0].rounded || tilesOf(head).some((tile) => tile.level.rounded)));
}

// A row's weights, if the page holds all of them.
function weightsOf(head, row) {
  const levels = pyramidOf(head);
  return levels && levels[0].rowStep === 1 && levels[0].keyStep === 1 ? rowOf(levels[0], row) : fetchedRow(head, row);
}

// The most attended keys of a row as [key, weight, rounded], heaviest first.
function topOf(head, row, count) {
  const fetched = fetchedTop(head, row, count);
  if (fetched) return fetched;
  const weights = weightsOf(head, row);
  if (weights) {
    const order = Array.from(weights.keys()).filter((key) => weights[key] > 0)
      .sort((a, b) => weights[b] - weights[a] || a - b);
    return order.slice(0, count).map((key) => [key, weights[key], pyramidOf(head)[0].rounded]);
  }
  const index = tensor('top_index-' + head);
  const weight = tensor('top_weight-' + head);
  if (!index || !weight) return [];
  const found = [];
  for (let k = 0; k < Math.min(count, index.shape[1]); k++) {
    const key = index.values[row * index.shape[1] + k];
    if (key >= 0) found.push([key, weight.values[row * index.shape[1] + k], weight.rounded]);
  }
  return found;
}

// A curve's number for a row (for `received`, a key). An entropy that f32 cannot tell from 0 is 0, as for a single key.
const LEAST_ENTROPY = 1e-6;
function curveValue(name, head, place) {
  const value = tensor(`${name}-${head}`)?.values[place] ?? NaN;
  return name === 'entropy' && Math.abs(value) < LEAST_ENTROPY ? 0 : value;
}

const isRowNaN = (head, row) => (weightsOf(head, row) ?? [curveValue('max_weight', head, row)]).some(Number.isNaN);

const spelled = (number) => number.toLocaleString('en');
const nameOf = (words, place) => (words.length ? words[place] : spelled(place));
const pairText = (row, key) => `${isolated(nameOf(queryWords, row))} → ${isolated(nameOf(keyWords, key))}`;
// Layers and heads are counted from 0. Head n of the page is head `head` of batch entry `entry`. If the heads belong to
// a model's layers, it is in layer `layer`.
function placeOfHead(n) {
  const entry = report ? Math.floor(n / report.heads) : 0;
  let head = report ? n % report.heads : n;
  const layers = report?.layers || [];
  for (let layer = 0; layer < layers.length; layer++) {
    if (head < layers[layer].heads) return { entry, layer, head };
    head -= layers[layer].heads;
  }
  return { entry, layer: -1, head };
}
// "layer 3, head 1"
function headName(n) {
  const { entry, layer, head } = placeOfHead(n);
  const name = layer < 0 ? '' : report.layers[layer].name;
  return (report?.batch > 1 ? `entry ${entry}, ` : '') + (name && `${/^\d+$/.test(name) ? 'layer ' : ''}${name}, `) + `head ${head}`;
}
// "3.1"
function headLabel(n) {
  const { entry, layer, head } = placeOfHead(n);
  return (report?.batch > 1 ? `${entry}/` : '') + (layer < 0 ? '' : report.layers[layer].name + '.') + head;
}

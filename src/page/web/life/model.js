// The model's arithmetic: embedding, learned positions, blocks of attention (and an MLP), a last norm, unembedding, as
// in heed/nn/transformer.hpp. Parameters are f32, all else f64. A matrix is {rows, columns, values}, row by row.
const emptyMatrix = (rows, columns) => ({ rows, columns, values: new Float64Array(rows * columns) });
const has = (name) => Object.hasOwn(page.tensors, name);

// x [L, in] times the weight [out, in] transposed, plus the bias if there is one: [L, out].
function linear(x, name) {
  const weight = tensor(name + '.weight');
  const [out, size] = weight.shape;
  const bias = has(name + '.bias') ? tensor(name + '.bias').values : new Float32Array(out);
  const made = emptyMatrix(x.rows, out);
  for (let row = 0; row < x.rows; row++)
    for (let o = 0; o < out; o++) {
      let sum = bias[o];
      for (let i = 0; i < size; i++) sum += weight.values[o * size + i] * x.values[row * size + i];
      made.values[row * out + o] = sum;
    }
  return made;
}

// weight (x - mean) / sqrt(variance + epsilon) + bias, row by row.
function layerNorm(x, name) {
  const weight = tensor(name + '.weight').values;
  const bias = tensor(name + '.bias').values;
  const made = emptyMatrix(x.rows, x.columns);
  for (let row = 0; row < x.rows; row++) {
    const values = rowOf(x, row);
    const mean = values.reduce((sum, value) => sum + value, 0) / x.columns;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.columns;
    const inverse = 1 / Math.sqrt(variance + page.epsilon);
    for (let i = 0; i < x.columns; i++) made.values[row * x.columns + i] = (values[i] - mean) * inverse * weight[i] + bias[i];
  }
  return made;
}

const added = (a, b) => ({ ...a, values: a.values.map((value, i) => value + b.values[i]) });

// erf(x) = 2 / sqrt(pi) exp(-x²) Σ 2^n x^(2n+1) / (1 · 3 · … · (2n+1)), whose terms all have one sign (Abramowitz and
// Stegun 7.1.6). Beyond 6 it is 1 in f64.
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let sum = 0;
  for (let n = 0, term = x; sum + term !== sum; n++, term *= (2 * x * x) / (2 * n + 1)) sum += term;
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
const gelu = (x) => ({ ...x, values: x.values.map((value) => (value * (1 + erf(value / Math.SQRT2))) / 2) });

// The softmax of scores; -Infinity is masked and gets 0.
function softmax(scores) {
  const largest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
  const powers = scores.map((score) => Math.exp(score - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

// One head: scores q·k, scaled by 1 / sqrt(d), weights [L, L], context [L, d]; from projections [L, H d].
function attendHead(projections, head, { causal, temperature, off }, layer) {
  const { rows: count, columns } = projections.query;
  const d = columns / page.heads;
  const part = (matrix, row) => matrix.values.subarray(row * columns + head * d, row * columns + (head + 1) * d);
  const found = { scores: emptyMatrix(count, count), weights: emptyMatrix(count, count), context: emptyMatrix(count, d) };
  const isOff = off.has(`${layer}.${head}`);
  for (let row = 0; row < count; row++) {
    const query = part(projections.query, row);
    const scores = rowOf(found.scores, row);
    for (let key = 0; key < count; key++)
      scores[key] = part(projections.key, key).reduce((sum, value, i) => sum + value * query[i], 0);
    const seen = scores.map((score, key) => (causal && key > row ? -Infinity : score / Math.sqrt(d) / temperature));
    const weights = softmax(seen);
    rowOf(found.weights, row).set(weights);
    if (isOff) continue;
    const context = rowOf(found.context, row);
    for (let key = 0; key < count; key++) part(projections.value, key).forEach((value,
      i) => { context[i] += weights[key] * value; });
  }
  return found;
}

function attention(x, layer, settings) {
  const name = `blocks.${layer}.attention.`;
  const projections = { query: linear(x, name + 'query'), key: linear(x, name + 'key'), value: linear(x, name + 'value') };
  const heads = Array.from({ length: page.heads }, (_, head) => attendHead(projections, head, settings, layer));
  const d = x.columns / page.heads;
  const merged = emptyMatrix(x.rows, x.columns);
  heads.forEach(({ context }, head) => {
    for (let row = 0; row < x.rows; row++) rowOf(merged, row).set(rowOf(context, row), head * d);
  });
  return { ...projections, heads, merged, output: linear(merged, name + 'out_proj') };
}

function block(x, layer, settings) {
  const name = `blocks.${layer}.`;
  const norm = layerNorm(x, name + 'attention_norm');
  const found = attention(norm, layer, settings);
  const made = { x, norm, attention: found, output: added(x, found.output) };
  if (page.attention_only) return made;
  made.middle = made.output;
  made.mlp = linear(gelu(linear(layerNorm(made.middle, name + 'mlp_norm'), name + 'mlp.up')), name + 'mlp.down');
  made.output = added(made.middle, made.mlp);
  return made;
}

// Adds the rows of the tokens' ids and the rows of their positions.
function embed(ids) {
  const table = tensor('token_embedding.weight');
  const token = emptyMatrix(ids.length, page.model_dim);
  ids.forEach((id, row) => rowOf(token, row).set(rowOf({ ...table, columns: page.model_dim }, id)));
  const position = emptyMatrix(ids.length, page.model_dim);
  position.values.set(tensor('positions.weight').values.subarray(0, ids.length * page.model_dim));
  return { token, position, sum: added(token, position) };
}

// settings: causal; temperature of the heads' softmax; off, a set of heads ("1.3") whose output is 0. `from`: an
// earlier run with the same tokens; `first`: the first layer that differs from it.
function run(ids, settings, from = null, first = 0) {
  const embedded = from ? from.embedded : embed(ids);
  const layers = from ? from.layers.slice(0, first) : [];
  let stream = layers.length ? layers.at(-1).output : embedded.sum;
  for (let layer = layers.length; layer < page.layers; layer++) {
    layers.push(block(stream, layer, settings));
    stream = layers.at(-1).output;
  }
  const norm = layerNorm(stream, 'norm');
  return { embedded, layers, norm, logits: linear(norm, 'unembedding') };
}

// The predictions after place `row`: [{id, probability}], the likeliest first.
function expectedAfter(found, row, temperature) {
  const shares = softmax(rowOf(found.logits, row).map((logit) => logit / temperature));
  return Array.from(shares, (probability, id) => ({ id, probability }))
    .sort((a, b) => b.probability - a.probability || a.id - b.id);
}

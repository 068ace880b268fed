// Says why the chosen head looks where it looks. Its largest score at the chosen word is split by the writers of the query
// and of the key, as `heed why` does. The norm is held, so that query and key are sums over their writers.
const MOST_PAIRS = 4;

// The writers of the stream before a layer at a place: [{name, values}]; the biases come last.
function writersAt(layer, place) {
  const { embedded, layers: found } = now.found;
  const biases = new Float64Array(page.model_dim);
  const writers = [{ name: 'token', values: rowOf(embedded.token, place) },
    { name: 'position', values: rowOf(embedded.position, place) }];
  for (let before = 0; before < layer; before++) {
    for (const head of headsOf) {
      const weights = rowOf(found[before].attention.heads[head].weights, place);
      const read = weights.indexOf(Math.max(...weights));
      writers.push({ name: `${before}.${head}`, read, values: handedOver(before, head, place) });
    }
    const name = `blocks.${before}.attention.out_proj.bias`;
    if (has(name)) tensor(name).values.forEach((value, i) => { biases[i] += value; });
    if (found[before].mlp) writers.push({ name: `MLP ${before}`, values: rowOf(found[before].mlp, place) });
  }
  return [...writers, { name: 'biases', values: biases }];
}

// Each writer's share of a head's query or key [d] at a place. The norm's shift and the projection's bias count as biases.
function sharesOf(kind, layer, head, place) {
  const name = `blocks.${layer}.attention`;
  const gain = tensor(`${name}_norm.weight`).values;
  const shift = tensor(`${name}_norm.bias`).values;
  const x = rowOf(now.found.layers[layer].x, place);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const middle = mean(x);
  const scale = 1 / Math.sqrt(mean(x.map((value) => (value - middle) ** 2)) + page.epsilon);
  const d = page.model_dim / page.heads;
  return writersAt(layer, place).map((writer) => {
    const own = mean(writer.values);
    const isBias = writer.name === 'biases';
    const normed = Float64Array.from(writer.values, (value, i) => gain[i] * (value - own) * scale + (isBias ? shift[i] : 0));
    const made = linear({ rows: 1, columns: page.model_dim, values: normed }, `${name}.${kind}`);
    if (!isBias && has(`${name}.${kind}.bias`))
      tensor(`${name}.${kind}.bias`).values.forEach((value, i) => { made.values[i] -= value; });
    return { ...writer, values: made.values.subarray(head * d, (head + 1) * d) };
  });
}

// {key, score, pairs: [{query, key, share}], the largest first; of each side the writer whose share says most}.
function whyOf(layer, head) {
  const weights = rowOf(now.found.layers[layer].attention.heads[head].weights, now.row);
  const key = weights.indexOf(Math.max(...weights));
  const queries = sharesOf('query', layer, head, now.row);
  const keys = sharesOf('key', layer, head, key);
  const root = Math.sqrt(page.model_dim / page.heads) * state.temperature;
  const pairs = queries.flatMap((one) => keys.map((other) => ({ query: one, key: other,
    share: one.values.reduce((sum, value, i) => sum + value * other.values[i], 0) / root })));
  const score = pairs.reduce((sum, pair) => sum + pair.share, 0);
  const largest = (side, writers) => writers.map((writer) => ({ writer,
    share: pairs.filter((pair) => pair[side] === writer).reduce((sum, pair) => sum + pair.share, 0) }))
    .reduce((most, one) => (Math.sign(score) * one.share > Math.sign(score) * most.share ? one : most));
  return { key, score, query: largest('query', queries),
    of: largest('key', keys), pairs: pairs.sort((a, b) => Math.abs(b.share) - Math.abs(a.share)).slice(0, MOST_PAIRS) };
}

const signed = (value) => (value < 0 ? '−' : '+') + Math.abs(value).toFixed(2);

function writerText({ name, read }) {
  return read === undefined ? name : [name, ', which read ', element('b', {}, now.labels[read])];
}

// The part that says why, or nothing where there is one key alone.
function whyPart(layer, head) {
  if (state.causal && now.row === 0) return false;
  const found = whyOf(layer, head);
  const wrote = ({ writer, share }, where) => [writer.read === undefined ? `the ${writer.name} ${where}`
    : [`what ${writer.name} wrote ${where} from `, element('b', {}, now.labels[writer.read])], ` (${signed(share)})`];
  return element('section', { class: 'why-part' }, element('h3', {}, 'Why ', element('b', { class: 'query' }, now.labels[now.row]),
    ' looks at ', element('b', { class: 'key' }, now.labels[found.key]), ' most'),
  element('p', {}, `Its score ${signed(found.score)} is a sum over who wrote the key and who wrote the query; ` +
    'the largest shares are those of ', wrote(found.of, 'there'), ' and ', wrote(found.query, 'here'), '.'),
  element('table', { class: 'why' }, element('thead', {}, element('tr', {}, ['score', 'the query of ' +
    now.labels[now.row], 'the key of ' + now.labels[found.key]].map((text) => element('th', { scope: 'col' }, text)))),
  element('tbody', {}, found.pairs.map(({ query, key, share }) => element('tr', {}, element('td', {}, signed(share)),
    element('td', {}, writerText(query)), element('td', {}, writerText(key)))))));
}

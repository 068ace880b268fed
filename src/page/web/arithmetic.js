// The arithmetic of the selected query and key, with its numbers: the query from the word's vector, the dot product
// with the key, the scale, the softmax, the weighted sum of the values.
const SHOWN_TERMS = 4;
const MOST_TERMS = 400;
const open = new Set();  // lists of terms that the reader opened

// "a × b + c × d + … = result", followed by the list of all terms. A term is [label, factor, factor].
function sumOfProducts(id, left, terms, result, marked = -1) {
  const first = terms.slice(0, SHOWN_TERMS);
  if (marked >= SHOWN_TERMS) first[SHOWN_TERMS - 1] = terms[marked];
  const line = element('p', { class: 'sum' }, left, ' = ');
  first.forEach(([, a, b], i) => {
    const gap = marked >= SHOWN_TERMS && i === SHOWN_TERMS - 1 ? ' + … + ' : i ? ' + ' : '';
    const mark = marked >= 0 && (terms[marked] === first[i]);
    line.append(gap, element('span', { class: mark ? 'term marked' : 'term' }, `${factor(a)} × ${factor(b)}`));
  });
  if (terms.length > SHOWN_TERMS) line.append(' + …');
  line.append(' = ', element('output', { 'data-result': id }, exact(result)));
  return [line, terms.length > SHOWN_TERMS && allTerms(id, terms, marked)];
}

function allTerms(id, terms, marked) {
  const rows = () => terms.slice(0, MOST_TERMS).map(([label, a, b], i) => element('tr',
    { class: i === marked ? 'marked' : '' }, element('th', { scope: 'row' }, label), element('td', {}, exact(a)),
    element('td', {}, '×'), element('td', {}, exact(b)), element('td', {}, '='), element('td', {}, exact(a * b))));
  const table = element('table', { class: 'terms' });
  const list = element('details', { open: open.has(id), ontoggle: () => {
    if (list.open) open.add(id);
    else open.delete(id);
    if (list.open && !table.rows.length) table.append(...rows());
  } }, element('summary', {}, `all ${terms.length} terms`), table,
  terms.length > MOST_TERMS && element('p', {}, `The first ${MOST_TERMS} of them.`));
  if (list.open) table.append(...rows());
  return list;
}

function part(title, names, now, ...content) {
  return element('section', { class: names.includes(now.step) ? 'on' : '', 'data-part': names[0] },
    element('h3', {}, title), content);
}

// A component of a projection: q_i[c] = Σ W[c, d] x[d] + b[c].
function projection(name, word, source, now) {
  const weight = tensor('weight-' + name + '.weight');
  const vector = stepMatrix(name);
  const row = name === 'query' ? now.row : now.key;
  const c = now.step === name ? Math.min(now.at, vector.columns - 1) : 0;
  const from = matrixOf(stepTensor(source));
  const heads = stepTensor(name).shape[0];
  const line = Math.floor((state.head * heads) / headCount()) * vector.columns + c;
  const terms = [...rowOf(matrixOf(weight), line)].map((w, d) => [String(d), w, at(from, row, d)]);
  const bias = tensor('weight-' + name + '.bias');
  if (bias) terms.push(['bias', bias.values[line], 1]);
  const letter = name[0];
  const left = [element('i', {}, letter), element('sub', {}, word()), `[${c}]`];
  return sumOfProducts(name, left, terms, at(vector, row, c));
}

// The numbers of the words, and the first numbers of the chosen word's vector.
const SHOWN_WORDS = 16;
const SHOWN_NUMBERS = 6;
function showNumbers(now) {
  const ids = stepTensor('ids').values;
  const vector = rowOf(stepMatrix('embeddings'), now.row);
  const first = queryWords.map((_, i) => i).filter((i) => ids.indexOf(ids[i]) === i);
  return [part('Each different word has a number', ['ids'], now,
    element('table', {}, first.slice(0, SHOWN_WORDS).map((i) => element('tr', { class: ids[i] === ids[now.row] ? 'marked' : '' },
      element('th', { scope: 'row' }, tokenText(page.query_tokens[i])), element('td', {}, String(ids[i]))))),
    element('p', { class: 'sum' }, 'The vector of ', queryWord(now.row), ` is row ${ids[now.row]} of the table: ${Array.from(
      vector.slice(0, SHOWN_NUMBERS), exact).join(', ')}${vector.length > SHOWN_NUMBERS ? ', …' : ''}`))];
}

function showProjections(now) {
  const source = page.cross ? 'context_embeddings' : 'embeddings';
  const made = [];
  const name = ['key', 'value'].includes(now.step) ? now.step : 'query';
  const word = () => (name === 'query' ? queryWord(now.row) : keyWord(now.key));
  if (!tensor('weight-' + name + '.weight')) return made;
  const titles = { query: 'Query of ', key: 'Key of ', value: 'Value of ' };
  made.push(part([titles[name], word()], [name], now,
    projection(name, word, name === 'query' ? 'embeddings' : source, now)));
  return made;
}

function showScore(now) {
  const query = rowOf(stepMatrix('query'), now.row);
  const key = rowOf(stepMatrix('key'), now.key);
  const terms = [...query].map((q, c) => [String(c), q, key[c]]);
  const score = at(stepMatrix('scores'), now.row, now.key);
  const scaled = at(stepMatrix('scaled'), now.row, now.key);
  const marked = ['query', 'key'].includes(now.step) ? now.at : -1;
  const left = [element('i', {}, 'q'), ' · ', element('i', {}, 'k')];
  return [
    part('Dot product', ['scores', 'query', 'key'], now, sumOfProducts('scores', left, terms, score, marked)),
    part('Scaled', ['scaled'], now, element('p', { class: 'sum' }, `${exact(score)} / √${query.length} = `,
      element('output', { 'data-result': 'scaled' }, exact(scaled)))),
  ];
}

function showMask(now) {
  if (!steps.masked || !isMasked(at(stepMatrix('masked'), now.row, now.key))) return [];
  return [part('Masked', ['masked'], now, element('p', {}, keyWord(now.key), ' comes after ', queryWord(now.row),
    ': its score becomes −∞ and its weight 0.'))];
}

// The heaviest keys in descending order; the selected key is always among them.
const SHOWN_KEYS = 8;
function heaviest(row, now) {
  const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b);
  const shown = order.slice(0, SHOWN_KEYS);
  if (!shown.includes(now.key)) shown[shown.length - 1] = now.key;
  return shown;
}

const bar = (share) => element('span', { class: 'bar', style: `--share: ${Math.max(0, Math.min(1, share))}` });

function showSoftmax(now) {
  const scores = rowOf(stepMatrix(steps.masked ? 'masked' : 'scaled'), now.row);
  const weights = rowOf(stepMatrix('weights'), now.row);
  // Large scores would overflow. Subtracting the largest from all of them changes no weight.
  const largest = extent(scores)[1];
  const shift = Math.abs(largest) > 50 ? largest : 0;
  const shown = (score) => (shift ? `${exact(score)} − ${factor(shift)}` : exact(score));
  const power = (score) => [element('i', {}, 'e'), element('sup', {}, shown(score))];
  const sum = scores.reduce((total, score) => total + Math.exp(score - shift), 0);
  // Six digits, so that their quotient has the digits that are shown of it.
  const parts = (value) => (value >= 1e6 || value < 1e-3 ? minus(value.toExponential(5)) : value.toPrecision(6));
  const score = scores[now.key];
  const rows = heaviest(weights, now).map((j) => element('tr', { class: j === now.key ? 'marked' : '' },
    element('th', { scope: 'row' }, keyWords[j]), element('td', {}, isMasked(scores[j]) ? '−∞' : exact(scores[j])),
    element('td', {}, exact(weights[j])), element('td', {}, isMasked(scores[j]) ? 'masked' : bar(weights[j]))));
  const rest = weights.length - rows.length;
  return [part('Softmax: shares of 1', ['weights', 'masked'], now,
    element('p', { class: 'sum' }, element('i', {}, 'w'), ' = ',
      isMasked(score) ? ['0 / ', parts(sum)] : [...power(score), ' / Σ ', element('i', {}, 'e'), element('sup', {}, 's'),
        ` = ${parts(Math.exp(score - shift))} / ${parts(sum)}`],
      ' = ', element('output', { 'data-result': 'weights' }, exact(weights[now.key]))),
    element('table', { class: 'shares' }, element('thead', {}, element('tr', {}, element('th', {}, ''),
      element('th', { scope: 'col' }, 'score'), element('th', { scope: 'col' }, 'weight'), element('th', {}, ''))),
    element('tbody', {}, rows)),
    rest > 0 && element('p', { class: 'soft' }, rest === 1 ? 'and one more word' : `and ${rest} more words`))];
}

function showContext(now) {
  const weights = rowOf(stepMatrix('weights'), now.row);
  const values = stepMatrix('value');
  const inValues = [partsOf('value'), 'H d_v'].includes(partsOf(now.step));
  const c = inValues ? now.at % values.columns : 0;
  const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a] || a - b);
  const terms = order.map((j) => [keyWords[j], weights[j], at(values, j, c)]);
  const left = [element('i', {}, 'z'), element('sub', {}, queryWord(now.row)), `[${c}]`];
  const result = at(stepMatrix('context'), now.row, c);
  return [part('The values, mixed by the weights', ['context', 'value', 'merged'], now,
    sumOfProducts('context', left, terms, result, order.indexOf(now.key)))];
}

function showOutput(now) {
  const weight = tensor('weight-out_proj.weight');
  if (!steps.output || !weight) return [];
  const output = stepMatrix('output');
  const c = now.step === 'output' ? Math.min(now.at, output.columns - 1) : 0;
  const merged = rowOf(stepMatrix('merged'), now.row);
  const terms = [...rowOf(matrixOf(weight), c)].map((w, d) => [String(d), w, merged[d]]);
  const bias = tensor('weight-out_proj.bias');
  if (bias) terms.push(['bias', bias.values[c], 1]);
  const left = [element('i', {}, 'o'), element('sub', {}, queryWord(now.row)), `[${c}]`];
  return [part('Output', ['output'], now, sumOfProducts('output', left, terms, at(output, now.row, c)))];
}

function showArithmetic(panel, now) {
  const kept = panel.scrollTop;
  panel.replaceChildren(
    element('h2', {}, queryWord(now.row), ' → ', keyWord(now.key),
      headCount() > 1 && element('span', { class: 'soft' }, `head ${state.head}`)),
    ...(isStory() ? showNumbers(now) : []), ...showProjections(now), ...showScore(now), ...showMask(now), ...showSoftmax(now), ...showContext(now),
    ...showOutput(now));
  panel.scrollTop = kept;
}

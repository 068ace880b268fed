// Where each step of the five notebooks on attention is shown: a list under the story, whose links lead to its thoughts.
// A step is [names in the notebook, step of the page, option that a page needs to have it, row, key].
const TEN = 'one two three four five six seven eight nine ten';
const NOTEBOOKS = [
  { title: 'Embedding an Input Sentence', program: '1_input_sentence', arguments: "'Life is short, eat dessert first'", steps: [
    ['dc, sentence_int, embedded_sentence', 'embeddings'],
    ['W_query, W_key, W_value', 'query'],
    ['query_2, key_2, value_2, keys, values', 'query', '', 1],
    ['omega_24, omega_2', 'scores', '', 1, 4]] },
  { title: 'Pay Attention', program: '2_pay_attention',
    arguments: "'the quick brown fox jumps over a lazy dog' --init normal --seed 0", steps: [
    ['dc, sentence_int, embedded_sentence', 'embeddings'],
    ['W_q, W_k, W_v, query_x, key_x, value_x, keys, values', 'query', '', 1],
    ['omega_x', 'scores', '', 1, 6],
    ['omega_x / d_k**0.5', 'scaled', '', 1, 6],
    ['attention_weights_x', 'weights', '', 1, 6],
    ['context_vector_x', 'context', '', 1, 6],
    ['multihead_W_q … multihead_context_vector_x', 'weights', '--heads 3'],
    ['Cross-Attention: embedded_sentence_2', 'context_embeddings', '--against OTHER_SENTENCE']] },
  { title: 'Single Self Attention Head', program: '3_causal_head',
    arguments: "'one two three four five six seven eight' --dim 32 --key-dim 16 --value-dim 16 --causal --init torch", steps: [
    ['x_bag_of_words, matrix_based', ''],
    ["masked_fill(tril == 0, float('-inf'))", 'masked', '--causal'],
    ['F.softmax(weights)', 'weights'],
    ['query, key, value', 'query'],
    ['1 / √head_size', 'scaled']] },
  { title: 'Implementing Attention', program: '4_self_attention',
    arguments: `'${TEN}' --dim 64 --key-dim 64 --value-dim 64 --init torch`, steps: [
    ['Q, K, V', 'query'],
    ['scores', 'scores'],
    ['scores / np.sqrt(d_k)', 'scaled'],
    ['attn_w', 'weights'],
    ['output', 'context']] },
  { title: 'Multi-head attention', program: '5_multihead',
    arguments: "'one two three four' --heads 8 --dim 512 --key-dim 64 --value-dim 64 --layout fused-qkv --causal --init torch", steps: [
    ['qkv_layer, q, k, v', 'query'],
    ['scaled', 'scaled'],
    ['scaled + mask', 'masked', '--causal'],
    ['attention', 'weights'],
    ['values', 'context'],
    ['values.reshape(…), linear_layer', 'output']] },
];
const onThisPage = { '': () => true, '--causal': () => steps.masked, '--heads 3': () => headCount() > 1,
  '--against OTHER_SENTENCE': () => page.cross };

function notebookStep([names, name, option = '', row, key], program) {
  const place = thoughts().findIndex(([, cards]) => cards.includes(name));
  const told = name === '' ? ['only in ', element('code', {}, program)]
    : !onThisPage[option]() || place < 0 ? ['on a page with ', element('code', {}, unbroken(option))]
      : element('a', { href: `#view=story&thought=${place + 1}` + (row === undefined ? '' : `&row=${row}&key=${key ?? row}`) },
        `${place + 1}. ${thoughts()[place][0]}`);
  return element('li', {}, element('code', {}, names), ' ', element('span', {}, told));
}

// Options break no line at their hyphens.
const unbroken = (command) => command.split(' ').flatMap((word) => [element('span', { class: 'argument' }, word), ' ']).slice(0, -1);

let notebooksAreOpen = false;
function notebooks() {
  const list = element('details', { class: 'notebooks', open: notebooksAreOpen, ontoggle: () => { notebooksAreOpen = list.open; } },
    element('summary', {}, 'Notebooks 1 to 5: where each of their steps is'),
    element('p', { class: 'soft' }, 'Links show the step with the numbers of this page. The command under a notebook writes a page with its ' +
      'sizes; those of notebooks 1 and 2 have its numbers, too. The program prints the whole notebook.'),
    element('div', { class: 'notebook-list' }, NOTEBOOKS.map(({ title, program, arguments: words, steps: named }, n) =>
      element('section', { 'data-notebook': n + 1 }, element('h3', {}, `Notebook ${n + 1}: ${title}`),
        element('ol', {}, named.map((step) => notebookStep(step, `examples/${program}.cpp`))),
        element('p', {}, element('code', { class: 'notebook-command' }, unbroken(`heed explain ${words} --html ${n + 1}.html`))),
        element('p', {}, element('code', {}, `examples/${program}.cpp`))))));
  return list;
}

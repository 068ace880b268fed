// Definitions of the terms of attention. Where a term stands in a text, it is a button that opens its definition below.
const GLOSSARY = {
  embedding: 'An embedding is a vector that stands for a word: a row of a table, learned in training.',
  query: 'A query is what a word looks for: the word’s vector times the matrix W_q. It is compared with every key.',
  key: 'A key is what a word can be found by: its vector times W_k.',
  value: 'A value is what a word hands over to those that attend to it: its vector times W_v.',
  'dot product': 'A dot product multiplies two vectors number by number and adds the products. It is large if they ' +
    'point the same way.',
  score: 'A score tells how well a query fits a key: it is their dot product.',
  scaled: 'Scaled scores are divided by √d_k, the root of the number of components of a query.',
  mask: 'A mask forbids keys: their scores become −∞, so that their weights are 0. The causal mask forbids all later words.',
  softmax: 'The softmax turns a row of scores into shares: e to the power of each score, divided by the sum of these ' +
    'powers. They are above 0 and sum to 1.',
  weight: 'A weight is the share of a row’s attention that a key gets. The weights of a row sum to 1.',
  context: 'The context of a word is the sum of all values, each times the weight that the word gives it.',
  head: 'A head is one such computation with its own matrices. Several heads look for different things at once.',
  'output projection': 'The output projection is the matrix W_o. It mixes the contexts of all heads and brings them back to ' +
    'the size of a word’s vector.',
  'residual stream': 'The residual stream is the vector of a place that runs through a whole model: each layer adds its output ' +
    'to it.',
};
// Names of heads, and measures. They are linked where they are shown as such; some are ordinary words in a text.
const HEAD_GLOSSARY = {
  'previous-token': 'A previous-token head looks at the word just before.',
  'next-token': 'A next-token head looks at the word just after.',
  self: 'A self head looks at the word itself.',
  induction: 'An induction head looks at what followed an earlier copy of the word, and so finds what may follow again.',
  'duplicate-token': 'A duplicate-token head looks at earlier copies of the word.',
  'same-token': 'A same-token head looks at other copies of the word, before and after it.',
  separators: 'A separators head looks at punctuation and special tokens.',
  'first-token sink': 'A first-token sink rests its weight on the first key. Many heads do so when they find nothing else.',
  local: 'A local head looks at near words: its mean distance is far below that of even weights.',
  vertical: 'A vertical head looks at the same keys from every row: stripes in its map.',
  'fixed offset': 'A head named “2 back” or “3 ahead” looks a fixed number of words back or ahead.',
  uniform: 'A uniform head spreads its weight nearly evenly over all keys.',
  mixed: 'A mixed head fits no rule well enough to be named.',
  'too few rows': 'Fewer than three rows of the text have a choice of keys, too few to name the head.',
  'score of a name': 'The score of a name tells how well its rule fits: 0 for even weights, 1 if all weight is where the rule looks. ' +
    'A star marks the share of the weight that is not on the first key. A dash: the text cannot tell.',
  entropy: 'Entropy tells how widely a row spreads its weight: 0 nats for one key, log n for n equal keys.',
  'largest weight': 'The largest weight of a row: 1 if one key gets everything.',
  'mean distance': 'The mean distance is how many positions away a row looks: each distance times its weight, summed.',
  received: 'A key receives the sum of the weights that all rows give it, counted in whole rows.',
};

// The term that explains a head's name.
const termOf = (name) => /^\d+ (back|ahead)$/.test(name) ? 'fixed offset' : name;

// A slot for one definition, and buttons that open it there. `kept` ({name}) remembers the open one when a panel is
// rebuilt.
function definitions(kept = { name: '' }, tag = 'p') {
  const slot = element(tag, { class: 'definition', role: 'note' });
  const buttons = [];
  const show = (name) => {
    kept.name = name;
    slot.hidden = !name;
    slot.replaceChildren(name && withSubscripts(HEAD_GLOSSARY[name] ?? GLOSSARY[name]));
    for (const [button, mine] of buttons) button.setAttribute('aria-expanded', String(mine === name));
  };
  const link = (named, text = named, style = 'defined') => {
    const name = termOf(named);
    if (!(HEAD_GLOSSARY[name] ?? GLOSSARY[name])) return element('span', { class: style.replace('defined', '').trim() }, text);
    const button = element('button', { type: 'button', class: style, 'aria-expanded': String(kept.name === name),
      onclick: () => show(kept.name === name ? '' : name),
      onkeydown: (event) => { if (event.key === 'Escape' && kept.name) show(''); } }, text);
    buttons.push([button, name]);
    return button;
  };
  show(kept.name);
  return { slot, link };
}

const TERMS = new RegExp(`\\b(${Object.keys(GLOSSARY).sort((a, b) => b.length - a.length).join('|')})(?:s|es)?\\b`, 'iu');

// The text with a button for the first use of each known term, in a paragraph in which their definitions open.
function glossed(attributes, ...children) {
  const seen = new Set();
  const { slot, link } = definitions({ name: '' }, 'span');
  const parts = (text) => {
    const made = [];
    for (let found = TERMS.exec(text); found; found = TERMS.exec(text)) {
      const name = found[1].toLowerCase();
      made.push(text.slice(0, found.index));
      if (seen.has(name)) made.push(found[0]);
      else {
        seen.add(name);
        made.push(link(name, found[0]));
      }
      text = text.slice(found.index + found[0].length);
    }
    return [...made, text];
  };
  return element('p', attributes, children.flat(Infinity).map((child) => (typeof child === 'string' ? parts(child) : child)), slot);
}

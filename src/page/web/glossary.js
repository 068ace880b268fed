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
  head: 'A head is one such computation with its own matrices. Several heads look for different things at once. ' +
    'docs/heads.md names the patterns of heads.',
  'output projection': 'The output projection is the matrix W_o. It mixes the contexts of all heads and brings them back to ' +
    'the size of a word’s vector.',
  'residual stream': 'The residual stream is the vector of a place that runs through a whole model: each layer adds its output ' +
    'to it.',
};
const TERMS = new RegExp(`\\b(${Object.keys(GLOSSARY).sort((a, b) => b.length - a.length).join('|')})(?:s|es)?\\b`, 'iu');

// The text with a button for the first use of each known term, in a paragraph in which their definitions open.
function glossed(attributes, ...children) {
  const seen = new Set();
  const slot = element('span', { class: 'definition', role: 'note', hidden: true });
  const show = (button, name) => {
    const opened = slot.hidden || slot.dataset.term !== name;
    for (const other of host.querySelectorAll('.defined')) other.setAttribute('aria-expanded',
      String(opened && other === button));
    slot.hidden = !opened;
    slot.dataset.term = name;
    slot.replaceChildren(formula(GLOSSARY[name]));
  };
  const parts = (text) => {
    const made = [];
    for (let found = TERMS.exec(text); found; found = TERMS.exec(text)) {
      const name = found[1].toLowerCase();
      made.push(text.slice(0, found.index));
      if (seen.has(name)) made.push(found[0]);
      else {
        seen.add(name);
        const button = element('button', { type: 'button', class: 'defined', 'aria-expanded': 'false', onclick: () =>
          show(button, name),
          onkeydown: (event) => { if (event.key === 'Escape' && !slot.hidden) show(button, slot.dataset.term); } }, found[0]);
        made.push(button);
      }
      text = text.slice(found.index + found[0].length);
    }
    return [...made, text];
  };
  const host = element('p', attributes, children.flat(Infinity).map((child) => (typeof child === 'string' ? parts(child)
    : child)), slot);
  return host;
}

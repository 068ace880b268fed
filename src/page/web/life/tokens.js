// Turns typed text into tokens and ids (heed/io/trained_tokenizer.hpp).
const MOST_TYPED = 4000;  // characters
const isSymbols = !page.tokenizer.characters;
const unit = isSymbols ? 'word' : 'character';
const shownToken = (token) => (isSymbols ? tokenText(token) : SIGNS[token] ?? tokenText(token));

// {tokens, ids, said}: the part of the text that the model reads, and a sentence on the part that it leaves out.
function tokensOf(text) {
  const cut = isSymbols ? text.split(/[,\t\n\v\f\r ]+/).filter((word) => word) : [...text];
  const tokens = [];
  const ids = [];
  const numbers = new Map((page.tokenizer.characters || []).map((character, id) => [character, id]));
  const unknown = new Set();
  let said = '';
  for (const token of cut) {
    if (!numbers.has(token) && !isSymbols) {
      unknown.add(tokenText(token));
      continue;
    }
    if (tokens.length === page.context) {
      said = `The model reads at most ${page.context} ${unit}s; the rest is left out.`;
      break;
    }
    if (!numbers.has(token) && numbers.size === page.tokenizer.symbols) {
      said = `The model has symbols for ${numbers.size} different words; it stops before “${tokenText(token)}”.`;
      break;
    }
    if (!numbers.has(token)) numbers.set(token, numbers.size);
    tokens.push(token);
    ids.push(numbers.get(token));
  }
  if (!said && tokens.length === page.context) said = `${tokens.length} ${unit}s are all that the model reads.`;
  if (!said && text.length >= MOST_TYPED) said = `The page takes ${MOST_TYPED.toLocaleString('en')} characters, no more.`;
  if (unknown.size) said = `The model does not know ${[...unknown].slice(0, 8).join(' ')}: left out. ` + said;
  return { tokens, ids, said, labels: isSymbols ? labelsOf(tokens) : tokens.map(shownToken) };
}

// The chosen token in a sentence: a word, or a character with those before it.
const MOST_BEFORE = 12;
function tokenInText(row) {
  if (isSymbols) return now.labels[row];
  const before = now.tokens.slice(Math.max(0, row - MOST_BEFORE), row).join('');
  return (row > MOST_BEFORE ? before.replace(/^\S*\s?(?=.)/, '…') : before) + now.labels[row];
}

// The text of a token's id beside these tokens; a symbol that no word has taken is "#17".
function textOf(id, { tokens, ids }) {
  if (!isSymbols) return shownToken(page.tokenizer.characters[id]);
  const place = ids.indexOf(id);
  return place < 0 ? '#' + id : tokenText(tokens[place]);
}

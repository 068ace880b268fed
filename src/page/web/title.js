// The page's title: given by its writer, else its sentence, else its size.
const MOST_TITLE = 240;  // letters
const MOST_TAB_TITLE = 60;

function cutAtWord(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const cut = letters.slice(0, most).join('');
  return cut.slice(0, Math.max(cut.lastIndexOf(' '), most / 2)).trimEnd() + '…';
}

// Tokens as a sentence, without special ones: pieces of a word are joined where their marks tell.
function sentenceOf(tokens) {
  const words = tokens.filter((token) => token.trim() && !SPECIAL.test(token.trim()));
  if (words.some((token) => /^[Ġ▁]/.test(token))) return words.map((token) => token.replace(/^[Ġ▁]/, ' ')).join('').trim();
  return words.map((token) => token.trim()).map((token, i) => (i && /^(?:·|##)./.test(token) ? token.replace(/^(?:·|##)/, '')
    : (i ? ' ' : '') + tokenText(token))).join('');
}
const sentences = () => [page.query_tokens, ...(page.cross ? [page.key_tokens] : [])].map(sentenceOf).map(isolated).join(' → ');
const counted = (count, one) => `${count.toLocaleString('en')} ${one}${count === 1 ? '' : 's'}`;
const heading = page.title || sentences() ||
  `Attention of ${counted(page.query_count, 'row')} over ${counted(page.key_count, 'key')}`;

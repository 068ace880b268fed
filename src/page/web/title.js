// The page's title: given by its writer, else its sentence, else its size.
const MOST_TITLE = 240;  // letters
const MOST_TAB_TITLE = 60;

function cutAtWord(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const cut = letters.slice(0, most).join('');
  return cut.slice(0, Math.max(cut.lastIndexOf(' '), most / 2)).trimEnd() + '…';
}

const sentenceOf = (tokens) => tokens.map((token) => token.trim()).filter(Boolean).map(tokenText).join(' ');
const sentences = () => [page.query_tokens, ...(page.cross ? [page.key_tokens] : [])].map(sentenceOf).join(' → ');
const heading = page.title || sentences() ||
  `Attention of ${page.query_count.toLocaleString('en')} rows over ${page.key_count.toLocaleString('en')} keys`;

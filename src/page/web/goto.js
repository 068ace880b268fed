// The field that goes to a row and a key: "17", "17:4", "it", "it, animal", "17, animal".
const QUOTED = /^["“](.+)["”]$/;

// A word without the signs that tokenizers put before a word or a piece; they need not be typed.
const bareWord = (word) => word.trim().replace(/^(?:Ġ|▁|##)+/, '').toLowerCase();

// The place named by a text, among `count` places with these words: {place}, or {fault} as a sentence. If several words
// match, it is the next one after `from`, or the first one if none follows.
function placeNamed(text, words, count, from, what) {
  const name = QUOTED.exec(text)?.[1] ?? text;
  if (/^\d+$/.test(text)) {
    const place = Number(text);
    return place < count ? { place } : { fault: `There is no ${what} ${text}: the last is ${spelled(count - 1)}.` };
  }
  const same = (fold) => {
    const found = [...words.keys()].filter((i) => fold(words[i]) === fold(name));
    return found.find((i) => i > from) ?? found[0];
  };
  const tokens = what === 'row' ? page.query_tokens : page.key_tokens;
  const place = same((word) => word) ?? [...tokens.keys()].filter((i) => bareWord(tokens[i]) === bareWord(name))
    .sort((a, b) => (a <= from) - (b <= from) || a - b)[0];
  if (place !== undefined) return { place };
  return { fault: words.length ? `“${name}” is not one of the ${what === 'row' ? 'words that ask' : 'words attended to'}.`
    : `“${name}” is not a number: ${what}s are counted from 0 to ${spelled(count - 1)}.` };
}

// Parses the typed text into {row, key}, or {fault}.
function placesNamed(text) {
  const parts = text.split(/\s*(?:,|:|→|->)\s*(?=\S)/).map((part) => part.trim().replace(/,$/, '')).filter(Boolean);
  const [row, key] = parts.length === 1 || parts.length === 2 ? parts : [text.trim()];
  const found = {};
  for (const [kind, name, words, count] of [['row', row, queryWords, page.query_count], ['key', key, keyWords, page.key_count]]) {
    if (name === undefined) continue;
    const { place, fault } = placeNamed(name, words, count, state[kind], kind);
    if (fault) return { fault };
    if (isHidden(kind, place)) return { fault: `“${words[place]}” is hidden: show special tokens first.` };
    found[kind] = place;
  }
  return found;
}

function goToField() {
  const said = element('span', { class: 'goto-said', role: 'alert', id: 'goto-said' });
  const word = (tokens, place) => cutAtWord(tokens[place].trim(), 9);
  const example = queryWords.length && keyWords.length
    ? `${word(page.query_tokens, opening.row)}, ${word(page.key_tokens, opening.key)}` : `${opening.row}:${opening.key}`;
  const field = element('input', { type: 'text', class: 'goto', 'aria-label': 'Go to row and key',
    'aria-describedby': 'goto-said', placeholder: example, autocomplete: 'off', spellcheck: 'false',
    title: 'A word or position of a row; after a comma, of a key' });
  const go = () => {
    const { fault, ...places } = field.value.trim() ? placesNamed(field.value) : {};
    said.textContent = fault || '';
    field.setAttribute('aria-invalid', String(Boolean(fault)));
    if (fault) return;
    choose(places);
    tell(`row ${nameOf(queryWords, state.row)}, key ${nameOf(keyWords, state.key)}`);
  };
  field.addEventListener('keydown', (event) => { if (event.key === 'Enter') go(); });
  return element('div', { class: 'choice goto-choice' },
    element('span', { class: 'choice-label', 'aria-hidden': 'true' }, 'Go to'), field,
    element('button', { type: 'button', 'aria-label': 'Go', tabindex: '-1', onclick: go }, '↵'), said);
}

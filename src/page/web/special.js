// Tokens that a tokenizer puts around and between texts. Hidden, they leave the pictures and the lists; their weights
// still count.
const SPECIAL = /^(?:\[(?:CLS|SEP|PAD|BOS|EOS)\]|<\/?s>|<(?:pad|bos|eos|cls|sep|start_of_turn|end_of_turn)>|<\|[^|]*\|>)$/;
const placesOf = (tokens) => tokens.flatMap((token, place) => (SPECIAL.test(token.trim()) ? [place] : []));
const counts = { row: page.query_count, key: page.key_count };
// By kind of place. A sentence that was typed in, and a text of such tokens alone, has none.
const specialPlaces = Object.fromEntries([['row', page.query_tokens], ['key', page.key_tokens]].map(([kind, tokens]) => {
  const places = page.steps.length ? [] : placesOf(tokens);
  return [kind, new Set(places.length < tokens.length ? places : [])];
}));
const hasSpecial = () => specialPlaces.row.size + specialPlaces.key.size > 0;
const isHidden = (kind, place) => !state.special && specialPlaces[kind].has(place);

// The places [from, to) between the hidden tokens at both ends.
function shownRange(kind) {
  let [from, to] = [0, counts[kind]];
  while (isHidden(kind, from)) from++;
  while (isHidden(kind, to - 1)) to--;
  return [from, to];
}

// The place itself, or the nearest shown one: first in the direction of `by`.
function shownPlace(kind, place, by = 1) {
  const [from, to] = shownRange(kind);
  const inside = Math.max(from, Math.min(to - 1, place));
  const search = (step) => {
    for (let at = inside; at >= from && at < to; at += step) if (!isHidden(kind, at)) return at;
    return null;
  };
  return search(Math.sign(by) || 1) ?? search(-Math.sign(by) || -1);
}

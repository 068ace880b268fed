// A hint to change the text, with what the model will then expect, and the text that the model writes on. Both are run first.
const MOST_TRIED = 6;  // runs of the model for one hint
const LEAST_SURE = 0.5;  // a hint with a smaller probability surprises nobody
const THINGS = [['hat', 'key'], ['key', 'hat'], ['cup', 'kite'], ['kite', 'cup']];  // of the stories in models/stories
const MOST_WRITTEN = isSymbols ? 5 : 24;

// Other last words: [{text, from, to}]. All came before; those after the same word as the last one are first.
function otherEndings() {
  const { ids, tokens } = now;
  const last = ids.length - 1;
  const before = tokens.slice(0, last).map((_, place) => place).reverse()
    .filter((place, n, all) => ids[place] !== ids[last] && all.findIndex((one) => ids[one] === ids[place]) === n);
  const isAlike = (place) => Number(place > 0 && ids[place - 1] === ids[last - 1]);
  return before.sort((a, b) => isAlike(b) - isAlike(a)).map((place) => ({ from: tokens[last], to: tokens[place],
    text: state.text.replace(/[^,\s]+(?=[,\s]*$)/, () => tokens[place]) }));
}

const otherThings = () => THINGS.map(([from, to]) => ({ from, to,
  text: state.text.replace(new RegExp(`\\b${from}\\b`), () => to) })).filter(({ text }) => text !== state.text);

const bestAfter = (tokens, row) => expectedAfter(run(tokens.ids, state), row, state.answer)[0];
const known = (id) => !isSymbols || now.ids.includes(id);

// The first change after which the model expects something else and is sure of it.
function* showHint() {
  const host = byId('hint');
  host.hidden = !now.found || now.row < now.ids.length - 1 || now.said || areOff(everyHead) || copyingIsOff();
  if (host.hidden) return;
  host.hidden = true;  // an earlier hint, until there is a new one
  const isFresh = isNew(now.row);
  const expected = best();
  for (const change of (isSymbols ? otherEndings() : otherThings()).slice(0, MOST_TRIED)) {
    const tokens = tokensOf(change.text);
    const { id, probability } = bestAfter(tokens, tokens.ids.length - 1);
    yield;
    if (probability < LEAST_SURE || !known(id) || (!isFresh && id === expected.id)) continue;
    const word = (text) => element('b', {}, text);
    byId('hint-text').replaceChildren('Try: write ', word(change.to), isSymbols ? ' in place of the last ' : ' in place of ',
      word(change.from), '. The model will then expect ', word(textOf(id, tokens)),
      ...(isFresh ? ['.'] : [' instead of ', word(textOf(expected.id, now)), '.']));
    byId('hint-do').onclick = () => changeTo(change.text);
    host.hidden = false;
    return;
  }
}
const changeTo = (text) => change({ text, word: LAST });

// The continuation after the chosen word. Each time the likeliest token is taken.
function* showWriting() {
  const host = byId('writing');
  if (!host) return;
  const ids = now.ids.slice(0, now.row + 1);
  const made = [];
  if (ids.length >= page.context) host.parentElement.hidden = true;
  while (made.length < MOST_WRITTEN && ids.length < page.context) {
    const { id } = bestAfter({ ids }, ids.length - 1);
    yield;
    host.parentElement.hidden = !known(id) && !made.length;
    if (!known(id)) break;
    ids.push(id);
    made.push(isSymbols ? textOf(id, now) : page.tokenizer.characters[id]);
    host.textContent = made.join(isSymbols ? ' ' : '').replace(/^\n+/, '') + ' …';
  }
}

function* showLater() {
  yield* showHint();
  yield* showWriting();
  yield* showWithout();
}

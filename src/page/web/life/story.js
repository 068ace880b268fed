// The layers as a story, one thought at a time. A thought is {title, text(), shown: what the lines show}.
const all = { layers, top: page.layers - 1 };

function placeOf(name, least = 0) {
  for (const layer of layers.slice(least)) {
    const head = bestHead(layer, name);
    if (head >= 0) return { layer, head, name: headLabel(layer, head) };
  }
  return null;
}
const previous = placeOf(PREVIOUS);
const induction = previous && placeOf(INDUCTION, previous.layer + 1);

const wordAt = (row) => element('b', { class: row === now.row ? 'query' : 'key' }, tokenInText(row));
const number = (text) => element('output', {}, text);
const weightsOf = ({ layer, head }) => now.found.layers[layer].attention.heads[head].weights;
// The key that a head attends to most in the chosen row, and its weight.
function mostAttended(place) {
  const row = rowOf(weightsOf(place), now.row);
  const key = row.indexOf(row.reduce((most, weight) => Math.max(most, weight), 0));
  return { key, weight: row[key] };
}
const best = () => expectedAfter(now.found, now.row, state.answer)[0];
function tellPrevious() {
  if (now.row === 0) return ['The first word has none before it. Choose a later one.'];
  return ['Whatever the words are, it attends to the place before. At ', wordAt(now.row), ' it gives ',
    number(exact(at(weightsOf(previous), now.row, now.row - 1))), ' of its attention to ', wordAt(now.row - 1),
    '. So after this layer every place holds two things: its own word and the word before it.'];
}

function tellInduction() {
  if (isNew(now.row)) return [wordAt(now.row), ' has not been said before, so no place answers what this head asks for. Say ' +
    'it again, or choose a word that came before.'];
  const { key, weight } = mostAttended(induction);
  const fits = key > 0 && now.ids[key - 1] === now.ids[now.row];
  return ['At ', wordAt(now.row), ` it asks: which place has my word before it? It gives `, number(exact(weight)),
    ' of its attention to ', wordAt(key),
    fits ? [': there, ', `${inWords(previous.name)} has noted `, wordAt(key - 1),
      '. The query of one layer meets the key that the other made possible.'] : '.'];
}

const tellNew = () => [wordAt(now.row), ' is new: there is nothing to copy, so the prediction means nothing. ' +
  'Choose a word that came before.'];

function tellCopy() {
  if (isNew(now.row)) return tellNew();
  const { id, probability } = best();
  const { key } = mostAttended(induction);
  const followed = now.ids.some((one, place) => place < now.row && one === now.ids[now.row] && now.ids[place + 1] === id);
  const expects = ['The model expects ', element('b', {}, textOf(id, now)), ' ', number(percent(probability)), '. '];
  if (copyingIsOff()) return [expects, 'The heads that copy are off, so it can only guess.'];
  if (!followed) return [expects, 'That has not followed ', wordAt(now.row), ' before, so it is a guess.'];
  return [now.ids[key] === id && ['The value that it fetches says: ', wordAt(key), '. '], expects,
    'That followed an earlier ', wordAt(now.row), ': it has copied. It can do so with words that it has never seen.'];
}

const copying = induction ? headsThat(induction.layer, INDUCTION).sort().map((head) => headLabel(induction.layer, head)) : [];
const copyingIsOff = () => isSymbols && copying.length > 0 && areOff(copying);
const switchCopying = () => element('button', { type: 'button', class: 'plain', 'data-key': 'story-switch',
  onclick: () => switchHeads(copying) }, `Switch ${copying.join(', ')} ${areOff(copying) ? 'on' : 'off'}`);

// The prediction with the copying heads, and its probability without them.
function tellLost() {
  const { id, probability } = expectedAfter(run(now.ids, { ...state, off: switched(copying) }), now.row, state.answer)[0];
  const left = expectedAfter(now.found, now.row, state.answer).find((one) => one.id === id).probability;
  return [`The ${copying.length} heads that copy are off. With them the model expects `, element('b', {}, textOf(id, now)), ' ',
    number(percent(probability)), '. Without them no head fetches what followed ', wordAt(now.row), ' the last time, and ',
    element('b', {}, textOf(id, now)), ' gets ', number(percent(left)), '. ', switchCopying()];
}

function tellProof() {
  if (isNew(now.row)) return tellNew();
  if (copyingIsOff()) return tellLost();
  const { id, probability } = best();
  const without = (names, layer, words) => [number(percent(areOff(names) ? probability : otherwise(names, layer, id))),
    ` without ${words}`];
  const others = copying.length > 1 ? `all ${copying.length} heads of layer ${induction.layer} that copy` : '';
  return ['The probability of ', element('b', {}, textOf(id, now)), ' is ', number(percent(probability)), ' now, ',
    without([previous.name], previous.layer, inWords(previous.name)), others ? ', ' : ', and ',
    without([induction.name], induction.layer, inWords(induction.name)),
    others && [', and ', without(copying, induction.layer, others)], '. ',
    switchCopying()];
}

const THE_STORY = [
  { title: 'Words are only symbols', shown: all, text: () => [
    `The model knows no language. Each different ${unit} takes one of ${page.tokenizer.symbols} symbols, so it can ` +
      `only tell which words are the same. It learned one thing from random symbols: what came next the last time?`] },
  { title: () => `Layer ${previous.layer}, head ${previous.head} looks one word back`, shown: () => ({ layers: [previous.layer], top: previous.layer }),
    text: tellPrevious },
  { title: () => `Layer ${induction.layer}, head ${induction.head} finds what followed`, shown: all, text: tellInduction },
  { title: 'It copies what it finds', shown: all, text: tellCopy },
  { title: 'Switch a head off', shown: all, text: tellProof },
];
const ANY_STORY = [
  { title: `Each ${unit} becomes a vector`, shown: all, text: () => ['Its token and its position are added: ',
    page.model_dim, ` numbers, the residual stream of its place. All layers read them and add to them.`] },
  { title: 'Heads fetch from earlier places', shown: all, text: () => ['At ', wordAt(now.row),
    ` each of the ${page.heads * page.layers} heads chooses where to look, and adds what it finds. The lines show one head a ` +
    `layer; choose others below.`] },
  { title: 'The last place says what comes next', shown: all, text: () => {
    const { id, probability } = best();
    return ['After ', wordAt(now.row), ' the model expects ', element('b', {}, textOf(id, now)), ' ',
      number(percent(probability)), '.'];
  } },
];
const thoughts = induction && isSymbols ? THE_STORY : ANY_STORY;
const resolved = (value) => (typeof value === 'function' ? value() : value);
const atOnce = () => state.thought >= thoughts.length;
const shownLines = () => (atOnce() ? all : resolved(thoughts[state.thought].shown));

function showThought(index) {
  const { title, text } = thoughts[index];
  return element('section', { class: 'thought' }, element('h3', {}, element('span', { class: 'thought-number' }, String(index +
    1)), resolved(title)),
    element('p', {}, now.found ? text() : `Type a ${unit}.`));
}

function showStory(host) {
  const go = (label, thought, key, off = false) => element('button', { type: 'button', 'data-key': key, disabled: off,
    onclick: () => change({ thought }) }, label);
  const last = thoughts.length - 1;
  host.replaceChildren(element('h2', {}, 'What the layers do'),
    ...(atOnce() ? thoughts.map((_, index) => showThought(index)) : [showThought(state.thought)]),
    element('div', { class: 'choice', role: 'group', 'aria-label': 'Story' },
      go('Back', within(state.thought - 1, 0, last), 'story-back', state.thought === 0),
      go('Next', state.thought + 1, 'story-next', state.thought >= last),
      atOnce() ? go('One at a time', 0, 'story-all') : go('All at once', thoughts.length, 'story-all'),
      element('span', { class: 'choice-label place' }, atOnce() ? '' : `${state.thought + 1} of ${thoughts.length}`)));
}

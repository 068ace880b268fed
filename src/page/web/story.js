// The steps as a story, one thought at a time. state.thought counts from 1; 0 shows all at once. A thought is [title,
// cards, parts of the panel, function that makes the text on the chosen words].
const STORY_CARDS = { flows: () => flowsCard(), root: () => rootCard() };
const isUntrained = page.about?.endsWith(', untrained.');
const finite = (values) => Array.from(values).filter(Number.isFinite);
const allowedOf = (name, row) => Array.from(rowOf(stepMatrix(name), row)).filter((_, key) =>
  !steps.masked || !isMasked(at(stepMatrix('masked'), row, key)));

// The largest share in a row's softmax, without and with the division by √d.
function sharesOf(row) {
  const [raw, scaled] = ['scores', 'scaled'].map((name) => largestShare(allowedOf(name, row)));
  return { row, raw, scaled, lost: raw - scaled };
}

const MUCH = 2;
const TELLING = 0.1;  // a smaller difference teaches nothing
function tellShares({ row, raw, scaled }) {
  const told = ['Without the division, the softmax of ', queryWord(row), ` would give ${exact(raw)} to one word; with it, ${
    exact(scaled)}. `];
  const slope = (share) => share * (1 - share);
  return slope(raw) >= slope(scaled) ? told : [...told, `The slope w (1 − w) is ${
    exact(slope(raw))} without the division, ${exact(slope(scaled))} with it.`];
}

// The chosen row, if the division matters in it. Else its own numbers, and the row of the head in which it matters
// most.
function tellRoot(now) {
  const d = stepMatrix('query').columns;
  const [raw, scaled] = ['scores', 'scaled'].map((name) => spread(finite(stepMatrix(name).values)));
  const sizes = ['query', 'key'].map((name) => wholeMean(finite(stepMatrix(name).values).map((value) => value ** 2)));
  const usual = Math.sqrt(sizes[0] * sizes[1]);  // the scaled spread of random vectors of these sizes
  const begin = ['A dot product sums d products. It spreads by √d around 0 if the numbers are random with mean 0 and variance 1, as in ' +
    'the table. Without the division, the softmax of long vectors gives nearly all to one key. Then its slope w (1 − w), with which ' +
    'training changes a weight w, is nearly 0.', element('br'),
  `This head has d = ${d}. Its scores spread by ${exact(raw)} around their mean; divided by √${d} = ${exact(Math.sqrt(d))} they are ` +
    `scaled and spread by ${exact(scaled)}. `,
  scaled > MUCH && `That is still far above 1, for ${isUntrained ? 'these untrained queries and keys' : 'these queries and keys'} ` +
    `are not like the random ones: their numbers have mean squares of ${short(sizes[0])} and ${short(sizes[1])}` +
    `${scaled > usual ? ', and the vectors lie along few directions' : ''}. `];
  const here = sharesOf(now.row);
  if (here.lost >= TELLING) return [begin, ...tellShares(here)];
  const most = queryWords.map((_, row) => sharesOf(row)).reduce((best, one) => (one.lost > best.lost ? one : best));
  const little = ['For ', queryWord(now.row), ` it changes little: one word gets ${exact(here.raw)} without the division, ${
    exact(here.scaled)} with it. `];
  return [begin, ...little, ...(most.lost >= TELLING ? tellShares(most)
    : ['The same holds for every row of this head: with these weights the division changes no share by more than ',
      exact(most.lost), '.'])];
}

function tellMask(now) {
  const later = page.key_count - 1 - now.row;
  return [queryWord(now.row), later > 0 ? ` may not see the ${later === 1 ? 'word' : later + ' words'} after it: the mask sets ` +
    `their scores to −∞, and e to that power is 0. ` : ' is the last word: nothing is forbidden. ',
    'So a model that predicts the next word cannot look at it.'];
}

const thoughts = () => [
  ['Words become vectors', ['embeddings', 'context_embeddings'], ['ids'],
    () => ['Each word has a number, and each number a vector, its embedding. Words that are the same have the same vector. A ' +
      'whole model would add the position here; this single layer has no positions, so order counts only through a mask.']],
  ['Three matrices make three vectors', ['query', 'key', 'value'], ['query', 'key', 'value'],
    (now) => ['From the embedding of ', queryWord(now.row), ', the matrix ', formula('W_q'), ' makes a query: what ' +
      'the word looks for. ',
      formula('W_k'), ' makes the key that it is found by, ', formula('W_v'),
      ' the value that it hands over. All words share the matrices of a head.',
      isUntrained && ' Here they are random numbers, so what a word looks for means nothing yet; training gives it a meaning.']],
  ['A query meets every key', ['scores'], ['scores'],
    (now) => ['The score of ', queryWord(now.row), ' and ', keyWord(now.key),
      ` is the dot product of a query and a key: ${exact(at(stepMatrix('scores'), now.row, now.key))}. A row shows ` +
        `how well one word fits all the others.`]],
  ['Why √d', ['root', 'scaled'], ['scaled', 'scores'], tellRoot],
  steps.masked && ['The mask hides what comes later', ['masked'], ['masked', 'weights'], tellMask],
  ['Scores become shares', ['weights'], ['weights', 'masked'],
    (now) => ['The softmax turns a row of scores into weights that are above 0 and sum to 1. ', queryWord(now.row), ' gives ',
      keyWord(now.key), ` ${exact(at(stepMatrix('weights'), now.row, now.key))}.`]],
  ['What flows where', ['flows', 'context'], ['context', 'weights'],
    (now) => ['The values flow to ', queryWord(now.row), ' in these shares. Their sum is its context: a mixture of what the ' +
      'others handed over.']],
  ['What each word becomes', ['merged', 'output'], ['output'],
    () => [headCount() > 1 ? 'The contexts of all heads stand side by side; the output projection mixes them. '
      : 'The output projection brings the context back to the size of a word’s vector. ',
      'A whole model adds the output to the residual stream of its place and continues with the next layer; at the ' +
        'end it predicts the next word. ',
      'heed explain --model induction --html life.html writes such a model into a page.']],
].filter((thought) => thought && thought[1].some((name) => steps[name])).map(([title, cards, parts, text]) => [title, cards, parts,
  (now) => text(now).filter(Boolean)]);

const isStory = () => state.view === 'story';
// The thoughts to show, each with its place.
function thoughtsNow() {
  const all = thoughts().map((thought, place) => [thought, place]);
  return state.thought > 0 && !isPrinting() ? all.slice(Math.min(state.thought, all.length) - 1).slice(0, 1) : all;
}

function storyBar() {
  const last = thoughts().length;
  const place = Math.min(state.thought, last);
  const go = (label, name, thought) => element('button', { type: 'button', 'data-value': name,
    disabled: thought === place ? '' : null, onclick: () => choose({ thought }) }, label);
  const buttons = place === 0 ? [go('One at a time', 'next', 1)] : [go('Back', 'back', Math.max(1, place - 1)),
    go('Next', 'next', Math.min(last, place + 1)), go('All at once', 'all', 0)];
  return element('section', { class: 'story', 'aria-label': 'Story' },
    roving(element('div', { class: 'choice', role: 'group', 'aria-label': 'Thoughts' }, buttons)),
    place > 0 && element('span', { class: 'soft story-place' }, `${place} of ${last}`));
}

const storySections = () => thoughtsNow().map(([thought, place]) => [`${place + 1}. ${thought[0]}`, thought[1]]);

// The texts, with the numbers of the chosen words, and the parts of the panel that belong to a thought shown alone.
function tellThoughts(host, panel, now) {
  const shown = thoughtsNow();
  host.querySelectorAll('.story-text').forEach((text, n) => text.replaceChildren(glossed({}, shown[n][0][3](now))));
  for (const section of panel.querySelectorAll('section'))
    section.hidden = shown.length === 1 && !shown[0][0][2].includes(section.dataset.part);
}

// Keys . and , turn to the next and the previous thought, and stay at the last and the first.
function turnThought(by) {
  const last = thoughts().length;
  const thought = Math.max(1, Math.min(last, isStory() ? Math.min(state.thought, last) + by : state.thought));
  if (page.steps.length) choose({ view: 'story', thought });
}

// The typed text, the selection and the switches. The address holds them after #, so that a link restores them.
const LAST = -1;
const INDUCTION = 'induction';
const PREVIOUS = 'previous-token';
const percent = (share) => (100 * share).toFixed(1) + ' %';
const layers = Array.from({ length: page.layers }, (_, layer) => layer);
const headsOf = Array.from({ length: page.heads }, (_, head) => head);
const headName = (layer, head) => page.looks[layer][head].name;
// The two forms of a head's name, as on the page of a report: "1.2" where room is short, else "layer 1, head 2".
const headLabel = (layer, head) => `${layer}.${head}`;
const inWords = (label) => 'layer ' + label.replace('.', ', head ');
const everyHead = layers.flatMap((layer) => headsOf.map((head) => headLabel(layer, head)));

// The heads of a layer with a role in the story, the best first. A text of repeated words assigns the roles, whatever
// text the page opens with.
const headsThat = (layer, role) => headsOf.filter((head) => page.roles[layer][head].name === role)
  .sort((a, b) => page.roles[layer][b].score - page.roles[layer][a].score);
const bestHead = (layer, role) => headsThat(layer, role)[0] ?? -1;
// For each layer, the head whose lines are shown: an induction or a previous-token head, if it has one.
function tellingHead(layer) {
  const head = bestHead(layer, INDUCTION);
  return head >= 0 ? head : Math.max(0, bestHead(layer, PREVIOUS));
}

const defaults = () => ({
  text: page.text, word: LAST, layer: page.layers - 1, shown: layers.map(tellingHead),
  temperature: 1, answer: 1, causal: true, off: new Set(), thought: 0, theme: 'auto',
});
const state = defaults();

const within = (value, low, high) => Math.min(high, Math.max(low, value));
const READ = {
  text: (text) => text.slice(0, MOST_TYPED),
  word: (text) => Math.floor(Number(text)) || 0,
  layer: (text) => within(Math.floor(Number(text)) || 0, 0, page.layers - 1),
  shown: (text) => layers.map((layer) => within(Math.floor(Number(text.split('.')[layer])) || 0, 0, page.heads - 1)),
  temperature: (text) => within(Number(text) || 1, 0.1, 3),
  answer: (text) => within(Number(text) || 1, 0.1, 3),
  causal: (text) => text !== '0',
  off: (text) => new Set(text.split(',').filter((name) => {
    const [layer, head] = name.split('.').map(Number);
    return layers.includes(layer) && headsOf.includes(head) && name === `${layer}.${head}`;
  })),
  thought: (text) => Math.max(0, Math.floor(Number(text)) || 0),
  theme: (text) => (['light', 'dark'].includes(text) ? text : 'auto'),
};
const WRITE = { shown: (heads) => heads.join('.'), causal: (on) => (on ? '1' : '0'), off: (names) => [...names].join(',') };
const writtenState = (name, value) => (WRITE[name] || String)(value);

function readAddress() {
  Object.assign(state, defaults());
  for (const [name, text] of new URLSearchParams(location.hash.slice(1)))
    if (Object.hasOwn(READ, name)) state[name] = READ[name](text);
}

// Browsers limit how often the address may change.
let writing = 0;
function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const usual = defaults();
    const parts = new URLSearchParams();
    for (const name of Object.keys(usual)) {
      const text = writtenState(name, state[name]);
      if (text !== writtenState(name, usual[name])) parts.set(name, text);
    }
    if (location.protocol !== 'about:') history.replaceState(null, '', '#' + parts);
  }, 200);
}

// The model's result: {tokens, ids, labels, said, row, found}; found is null without tokens.
let now = null;
// Words that have not occurred before. A model of symbols only copies, so its prediction after such a word is
// meaningless.
const NEW_WORD = 'new word: nothing to copy yet';
const isNew = (row) => isSymbols && now.ids.indexOf(now.ids[row]) === row;
const chosenRow = () => Math.min(state.word < 0 ? Infinity : state.word, now.ids.length - 1);
function compute() {
  now = tokensOf(state.text);
  now.found = now.ids.length ? run(now.ids, state) : null;
  now.row = chosenRow();
}

let frame = 0;
function change(changes) {
  Object.assign(state, changes);
  writeAddress();
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    compute();
    show();
  });
}

const areOff = (names) => names.every((name) => state.off.has(name));
// state.off after switching these heads together: all off, or all on if they are off.
function switched(names) {
  const off = new Set(state.off);
  for (const name of names) if (areOff(names)) off.delete(name); else off.add(name);
  return off;
}
const switchHeads = (names) => change({ off: switched(names) });

// Work that waits until typing pauses. `work` yields after each run of the model, so that typing is never held up.
let waiting = 0;
function later(work) {
  clearTimeout(waiting);
  const next = () => { if (!work.next().done) waiting = setTimeout(next, 0); };
  waiting = setTimeout(next, 150);
}

const showHead = (layer, head) => change({ layer, shown: state.shown.map((shown, at) => (at === layer ? head : shown)) });
const chooseWord = (row) => change({ word: row === now.ids.length - 1 ? LAST : row });

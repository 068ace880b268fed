// The page: the typed text and the switches, and everything computed from them.
const SHOWN_EXPECTED = 5;
const LEAST_EXPECTED = 0.01;  // less is told together
const byId = (id) => document.getElementById(id);
const EXAMPLES = [...new Set([page.text, ...(isSymbols ? ['to be or not to be or', 'A B C D A B C']
  : ['Once a fox met the old owl. The fox was ', 'The green boat was all that Ida '])])].filter((text) => !tokensOf(text).said);

function slider(name, label, title) {
  const told = element('output', {}, '');
  const input = element('input', { type: 'range', min: 0.1, max: 3, step: 0.1, 'aria-label': label, title,
    oninput: () => change({ [name]: Number(input.value) }) });
  return { node: element('label', { class: 'slider', 'data-slider': name }, element('span', {}, label), input, told),
    show: () => { input.value = state[name]; told.textContent = state[name].toFixed(1); } };
}

const controls = {
  temperature: slider('temperature', 'Temperature of attention', 'Scaled scores are divided by it before the softmax: ' +
    'below 1 heads are more certain, above 1 they spread'),
  answer: slider('answer', 'Temperature of the prediction', 'Logits are divided by it before the softmax'),
};
const causal = element('input', { type: 'checkbox', role: 'switch', onchange: () => change({ causal: causal.checked }) });
const allHeads = element('button', { type: 'button', class: 'plain', 'data-key': 'all-heads', onclick: () => switchHeads(everyHead) });
const theme = choice('Theme', [['auto', 'auto'], ['light', 'light'], ['dark', 'dark']], () => state.theme, (name) =>
  change({ theme: name }));
const reset = element('button', { type: 'button', class: 'plain', onclick: () => change({ ...defaults(), text: state.text,
  theme: state.theme }) }, 'As trained');

function buildPage() {
  document.title = `${page.name}: a model to type into · heed`;
  byId('about').textContent = `${page.name}: ${page.layers} ${page.layers === 1 ? 'layer' : 'layers'} of ${page.heads} heads, ${
    page.attention_only ? 'attention only, ' : ''}${page.parameters.toLocaleString('en')} parameters, all of them in this file.`;
  const typed = byId('typed');
  typed.maxLength = MOST_TYPED;
  typed.addEventListener('input', () => change({ text: typed.value, word: LAST }));
  byId('examples').append(...EXAMPLES.map((text, n) => element('button', { type: 'button', class: 'plain', 'data-example': n,
    onclick: () => changeTo(text) }, cutTo(text, 180))));
  byId('examples').hidden = !EXAMPLES.length;
  byId('controls').append(controls.temperature.node, controls.answer.node, element('label', { class: 'switch' }, causal,
    element('span', {}, 'causal')), allHeads, reset, theme);
  byId('heads').append(element('h2', {}, 'All heads ', element('span', { class: 'soft', id: 'without-all' })),
    element('p', { class: 'soft' }, 'Layers and heads are counted from 0. A click on a map shows that head in the lines and below; ' +
      `grey is masked. Heads are named from the text that the page opened with (docs/heads.md has the rules).`),
    element('div', { class: 'layers' }, buildHeads()));
}

function showTyped() {
  const typed = byId('typed');
  if (typed.value !== state.text) typed.value = state.text;
  byId('count').textContent = `${now.tokens.length} of ${page.context} ${unit}s`;
  byId('said').textContent = now.said;
}

// A line breaks between words, not within them.
function inWordsOfLetters(buttons) {
  const words = [];
  buttons.forEach((button, place) => {
    if (!place || !now.tokens[place - 1].trim()) words.push(element('span', { role: 'presentation' }));
    words.at(-1).append(button);
  });
  return words;
}

// The words as buttons: one tab stop, in which arrow keys move.
function showWords() {
  const host = byId('words');
  const buttons = now.labels.map((label, row) => element('button', { type: 'button', class: 'word', role: 'radio',
    'data-kind': 'row', 'data-key': 'word-' + row,
    'aria-checked': String(row === now.row), tabindex: row === now.row ? 0 : -1,
    onclick: () => chooseWord(row) }, label));
  host.classList.toggle('letters', !isSymbols);
  host.replaceChildren(...(isSymbols ? buttons : inWordsOfLetters(buttons)));
  const chosen = buttons[now.row];
  if (chosen) host.scrollTop = chosen.offsetTop - host.offsetTop - host.clientHeight / 2;
}

function onWordKey(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!step || !now.found) return;
  event.preventDefault();
  const row = within(chosenRow() + step, 0, now.labels.length - 1);  // now.row may be a frame behind
  chooseWord(row);
  requestAnimationFrame(() => byId('words').querySelectorAll('.word')[row]?.focus());
}

function showNewWord(host) {
  const word = () => element('b', { class: 'query' }, now.labels[now.row]);
  host.replaceChildren(element('h2', {}, 'After ', word()), element('p', { class: 'soft' }, NEW_WORD),
    element('p', { class: 'soft' }, 'This model copies what followed the same word the last time. Say more, then ', word(),
      ' again.'));
  tell(`After ${now.labels[now.row]}: ${NEW_WORD}`);
}

const put = (host, ...children) => host.replaceChildren(...children.filter(Boolean));

function tellAlone() {
  const guess = isSymbols ? ` A guess among ${page.tokenizer.symbols} symbols is right in ${percent(1 / page.tokenizer.symbols)}.` : '';
  if (!areOff(everyHead)) return element('p', { class: 'alone' }, `The heads that copy (${copying.join(', ')}) are off: this is a guess.`);
  return element('p', { class: 'alone' }, `All ${everyHead.length} heads are off. The model sees only `, element('b', { class: 'query' },
    now.labels[now.row]), ` and its place, and no other ${unit}: it can only guess.${guess}`);
}

function showExpected() {
  const host = byId('expected');
  if (!now.found) return host.replaceChildren(element('p', { class: 'soft' },
    `Type a ${unit}, and the model predicts what comes next.`));
  if (isNew(now.row)) return showNewWord(host);
  const everything = expectedAfter(now.found, now.row, state.answer);
  const expected = everything.slice(0, SHOWN_EXPECTED).filter(({ probability }, n) => n === 0 || probability >= LEAST_EXPECTED);
  const hidden = everything.slice(expected.length).reduce((sum, { probability }) => sum + probability, 0);
  put(host, element('h2', {}, 'After ', element('b', { class: 'query' }, tokenInText(now.row)), ' the model expects'),
    element('ol', { class: 'bars' }, expected.map(({ id, probability }) => element('li', { 'data-id': id,
      style: `--share: ${probability}` },
      element('span', { class: 'bar-name' }, textOf(id, now)), element('span', { class: 'share-bar' }), element('output', {},
        percent(probability))))),
    hidden > 0 && element('p', { class: 'soft' }, `All others: ${percent(hidden)}`),
    areOff(everyHead) || copyingIsOff() ? tellAlone() : element('p', {}, 'It writes on: ', element('b', { id: 'writing' }, '…')),
    expected.some(({ id }) => !known(id)) && element('p', { class: 'soft' }, 'Tokens such as #17 are symbols that no word has taken.'));
  tell(`After ${now.labels[now.row]}: ${textOf(expected[0].id, now)} ${percent(expected[0].probability)}`);
}

function show() {
  const focused = document.activeElement?.dataset?.key;
  if (state.theme === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', state.theme);
  for (const { show: showControl } of Object.values(controls)) showControl();
  causal.checked = state.causal;
  pressed(theme, state.theme);
  allHeads.textContent = `Switch all heads ${areOff(everyHead) ? 'on' : 'off'}`;
  showTyped();
  showWords();
  showExpected();
  showStory(byId('story'));
  showFlow(byId('flow'), shownLines());
  showHeads();
  later(showLater());
  showWalk(byId('walk'));
  const again = focused && document.querySelector(`[data-key="${CSS.escape(focused)}"]`);
  if (again && again !== document.activeElement) (again.disabled ? document.querySelector('[data-key="story-all"]')
    : again).focus({ preventScroll: true });
}

readAddress();
buildPage();
compute();
show();
byId('words').addEventListener('keydown', onWordKey);
window.addEventListener('hashchange', () => { readAddress(); compute(); show(); });
window.addEventListener('resize', () => showFlow(byId('flow'), shownLines()));
window.addEventListener('beforeprint', () => showFlow(byId('flow'), all));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);

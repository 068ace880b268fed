// The page itself: heading, views, settings and keyboard shortcuts.
const stage = document.getElementById('view');
let shownView = null;

function shadeWord(word, share, scale) {
  word.classList.toggle('is-masked', isMasked(share));
  word.title = `${word.textContent}: ${isMasked(share) ? 'masked' : exact(share)}`;
  if (isMasked(share)) return;
  const colour = colours()[colourNumber(scale, share)];
  word.style.setProperty('--fill', css(colour));
  word.style.setProperty('--on-fill', inkOn(colour));
}

// The part of a report's subtitle that only its tooltip says.
const TECHNICAL = /, (?:D \d+|b?f\d+|(?:fused|reference) \([^)]*\)|scale [^,]+)(?=,|$)/g;

const controls = {};
function buildHead() {
  document.title = `${cutAtWord(heading, MOST_TAB_TITLE)} · heed`;
  const title = document.getElementById('title');
  title.textContent = cutAtWord(heading, MOST_TITLE);
  title.title = heading;  // the page shows one line
  const about = document.getElementById('about');
  about.textContent = (page.steps.length ? page.about : page.about.replace(TECHNICAL, '')).replaceAll('d_k', 'dₖ').replaceAll('d_v', 'dᵥ');
  about.title = page.about;
  document.getElementById('thought-keys').hidden = !page.steps.length;
  showProof(document.querySelector('.headline'));
  const shown = Object.entries(views());
  controls.view = choice('View', shown.map(([name, view]) => [name, view.name]), () => state.view,
    (view) => choose({ view }));
  if (shown.length < 2) controls.view.hidden = true;
  const heads = Array.from({ length: headCount() }, (_, h) => [h, report?.batch > 1 ? headName(h) : headLabel(h)]);
  controls.head = heads.length > (window.innerWidth > SMALL_SCREEN ? 16 : 5)
    ? element('label', { class: 'choice' }, element('span', { class: 'choice-label' }, 'Head'),
      element('select', { onchange: (event) => choose({ head: Number(event.target.value) }) },
        heads.map(([h, text]) => element('option', { value: h }, text))))
    : choice('Head', heads, () => state.head, (head) => choose({ head }));
  controls.head.hidden = heads.length < 2;
  controls.places = goToField();
  controls.colours = choice('Colours', Object.keys(PALETTES).map((name) => [name, name]), () => state.colours,
    (name) => choose({ colours: name }));
  controls.scaled = choice('Scaled', Object.entries(SCALINGS), () => state.scaled, (scaled) => choose({ scaled }));
  controls.log = choice('Scale', [[false, 'linear'], [true, 'log']], () => state.log, (log) => choose({ log }));
  if (hasSpecial()) controls.special = choice('Special tokens', [[true, 'shown'], [false, 'hidden']], () => state.special, (special) => choose({ special }));
  controls.theme = choice('Theme', [['auto', 'auto'], ['light', 'light'], ['dark', 'dark']], () => state.theme,
    (theme) => choose({ theme }));
  const { view, head, places, special, ...looks } = controls;
  const small = window.innerWidth <= SMALL_SCREEN;
  document.getElementById('controls').replaceChildren(view, head, places, ...(special && !small ? [special] : []),
    ...folded('Display', [...(special && small ? [special] : []), ...Object.values(looks)]));
}

// On a small screen a button opens this content; on a large one page.css shows it at once.
function folded(name, content) {
  const slot = element('div', { class: 'folding', id: 'folding' }, content);
  const toggle = element('button', { type: 'button', class: 'fold', 'aria-expanded': 'false', 'aria-controls': 'folding',
    onclick: () => {
    toggle.setAttribute('aria-expanded', String(slot.classList.toggle('open')));
  } }, name);
  return [toggle, slot];
}

function setTheme() {
  const root = document.documentElement;
  const theme = isPrinting() ? 'light' : state.theme;
  if (theme === 'auto') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', theme);
  forgetColours();
}

function refresh() { shownView?.refresh(); }

// Lines and Pair colour nothing by weight.
const UNCOLOURED = ['lines', 'pair'];

function showControls() {
  for (const name of ['colours', 'scaled', 'log']) controls[name].hidden = UNCOLOURED.includes(state.view);
  for (const [name, group] of Object.entries(controls)) {
    if (!(name in state)) continue;
    const select = group.querySelector('select');
    if (select) select.value = state[name];
    else pressed(group, state[name]);
  }
}

// Redraws the chosen view; the keyboard focus stays on its picture.
function redraw() {
  setTheme();
  showControls();
  const focused = selectorOf(document.activeElement);
  const [x, y] = [window.scrollX, window.scrollY];
  const before = shownView;
  shownView = views()[state.view];
  stage.style.minHeight = stage.offsetHeight + 'px';
  stage.replaceChildren();
  hideTip();
  shownView.build(stage);
  for (const panel of stage.querySelectorAll('.panel')) sheetOf(panel);
  stage.style.minHeight = '';
  window.scrollTo(x, y);
  if (shownView !== before) shownView.opened?.();
  if (focused) stage.querySelector(focused)?.focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
  const turn = (by) => choose({ head: (state.head + by + headCount()) % headCount() });
  if (event.key === '[') turn(-1);
  else if (event.key === ']') turn(1);
  else if (event.key === ',' || event.key === '.') turnThought(event.key === '.' ? 1 : -1);
  else if (event.key === 'l') choose({ log: !state.log });
  else if (event.key === 'g') {
    event.preventDefault();
    controls.places.querySelector('input').select();
  } else if (event.key === 'n' || event.key === 'p') turnPicture(event.key === 'n' ? 1 : -1);
  else if (event.key === 'Escape') point(null);
  else {
    const view = Object.keys(views())[Number(event.key) - 1];
    if (view) choose({ view });
  }
}

// Moves to the next or previous picture of the view.
function turnPicture(by) {
  const pictures = [...stage.querySelectorAll('.marks[tabindex], .text[tabindex]')];
  const at = pictures.indexOf(document.activeElement);
  pictures.at(at < 0 ? (by > 0 ? 0 : -1) : (at + by) % pictures.length)?.focus();
}

let width = 0;
function onResize() {
  if (stage.clientWidth === width) return;
  width = stage.clientWidth;
  shownView?.layOut();
}

document.body.append(tip);
readFragment();
buildHead();
redraw();
width = stage.clientWidth;
document.addEventListener('keydown', onKey);
window.addEventListener('resize', onResize);
window.addEventListener('hashchange', () => { readFragment(); redraw(); });
// The numbers that follow this script are available once the file is loaded.
if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', redraw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

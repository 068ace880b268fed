// The selection. The URL's fragment holds it, so a link restores it. The place under the pointer is not in the URL.
//
// A page opens on its strongest weight beside the diagonal and the first key; long texts open on the map, and so do
// small screens, which have no room for steps side by side.
const MOST_STEP_WORDS = 64;
const SMALL_SCREEN = 620;
const opensOnSteps = page.steps.length && page.query_count <= MOST_STEP_WORDS && window.innerWidth > SMALL_SCREEN;
const FEW_HEADS = 16;  // more are best seen all at once
const opensOnLayers = !page.beside && window.innerWidth > SMALL_SCREEN && (page.report?.summaries.length ?? 0) > FEW_HEADS;
const opening = page.report?.opening || { head: 0, row: Math.max(0, page.query_count - 1), key: 0 };
// Where many heads rest on the first key, their lines to it hide the others.
const restOnFirst = 4 * (page.report?.summaries.filter((head) => head.names?.some(({ pattern }) => pattern === 'first-token sink')).length ?? 0) >=
  (page.report?.summaries.length || 1);
const DEFAULTS = {
  view: page.picture ? 'picture' : opensOnSteps || !page.report ? 'steps' : opensOnLayers ? 'layers' : 'map',
  head: opening.head, row: opening.row, key: opening.key, at: 0, step: '', colours: 'blue', log: page.key_count > 256,
  scaled: 'others', theme: 'auto', shade: 'to', zoom: '', thought: 1,
  minus: page.beside ? 'same' : 'none', with: '', pin: '', sink: !restOnFirst, special: true, figure: 'named', order: 'layers', only: '', drawn: '',
};
const state = { ...DEFAULTS };
let pointed = null;  // {row, key, at, step} under the pointer

function readFragment() {
  Object.assign(state, DEFAULTS);
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!(name in DEFAULTS)) continue;
    const kind = typeof DEFAULTS[name];
    if (kind === 'number') state[name] = Math.max(0, Math.floor(Number(text)) || 0);
    else state[name] = kind === 'boolean' ? text === '1' : text;
  }
  const within = (name, count) => { state[name] = Math.min(state[name], Math.max(0, count - 1)); };
  within('head', headCount());
  within('row', page.query_count);
  within('key', page.key_count);
  if (!Object.hasOwn(PALETTES, state.colours)) state.colours = DEFAULTS.colours;
  if (!Object.hasOwn(SCALINGS, state.scaled)) state.scaled = DEFAULTS.scaled;
  if (!Object.hasOwn(SHADES, state.shade)) state.shade = DEFAULTS.shade;
  if (!['auto', 'light', 'dark'].includes(state.theme)) state.theme = DEFAULTS.theme;
  if (!/^(none|same|\d+)$/.test(state.minus) || Number(state.minus) >= headCount() || (state.minus === 'same' && !page.beside))
    state.minus = DEFAULTS.minus;
  settle();
  if (!Object.hasOwn(steps, state.step)) state.step = DEFAULTS.step;
  if (!Object.hasOwn(views(), state.view)) state.view = DEFAULTS.view;
}

// Moves the selection off hidden tokens.
function settle() {
  for (const kind of ['row', 'key']) state[kind] = shownPlace(kind, state[kind]);
}

function writeFragment() {
  if (location.protocol === 'about:') return;  // a notebook's frame has no address
  const parts = [];
  for (const name of Object.keys(DEFAULTS)) {
    if (state[name] === DEFAULTS[name]) continue;
    const value = typeof state[name] === 'boolean' ? Number(state[name]) : state[name];
    parts.push(`${name}=${encodeURIComponent(value)}`);
  }
  history.replaceState(null, '', '#' + parts.join('&'));
}

// Changes the state and redraws. Moving the selection redraws less than changing a picture. A view may list further
// names in `selects` that only move the selection.
const SELECTION = ['row', 'key', 'at', 'step'];
function choose(changes) {
  const names = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  Object.assign(state, changes);
  settle();
  pointed = null;
  if (!names.length) return refresh();
  writeFragment();
  const moves = [...SELECTION, ...(shownView.selects ?? [])];
  if (!names.every((name) => moves.includes(name))) return redraw();
  showControls();
  refresh();
}

let frame = 0;
function point(place) {
  pointed = place;
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    refresh();
  });
}

// The highlighted place in the views: the place under the pointer, else the selection.
const followed = () => ({ row: state.row, key: state.key, at: state.at, step: state.step, ...pointed });

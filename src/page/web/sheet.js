// On a small screen the panel is a sheet at the bottom: its handle opens and closes it by a tap, a drag or a key.
let sheetOpen = false;
const LEAST_DRAG = 18;  // pixels

function sheetOf(panel) {
  panel.id = 'panel';
  const handle = element('button', { type: 'button', class: 'handle', 'aria-controls': 'panel', 'aria-label': panel.getAttribute('aria-label') });
  const sheet = element('div', { class: 'sheet' }, handle);
  panel.replaceWith(sheet);
  sheet.append(panel);
  const set = (open) => {
    sheetOpen = open;
    sheet.classList.toggle('open', open);
    handle.setAttribute('aria-expanded', String(open));
  };
  let from = null;
  let dragged = false;
  handle.addEventListener('pointerdown', (event) => {
    [from, dragged] = [event.clientY, false];
    handle.setPointerCapture(event.pointerId);
  });
  handle.addEventListener('pointermove', (event) => {
    if (from === null || Math.abs(event.clientY - from) < LEAST_DRAG) return;
    dragged = true;
    set(event.clientY < from);
  });
  handle.addEventListener('pointerup', () => { from = null; });
  handle.addEventListener('pointercancel', () => { from = null; });
  // A drag also ends with a click.
  handle.addEventListener('click', () => {
    if (!dragged) set(!sheetOpen);
    dragged = false;
  });
  sheet.addEventListener('keydown', (event) => { if (event.key === 'Escape') set(false); });
  panel.addEventListener('focusin', () => set(true));
  set(sheetOpen);
}

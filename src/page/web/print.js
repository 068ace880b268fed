// Printing: the light theme, at the width of a page, with everything that folds or scrolls laid out.
let printing = false;
const isPrinting = () => printing;

function forPaper(on) {
  if (printing === on) return;
  printing = on;
  document.documentElement.classList.toggle('printing', on);
  redraw();
}
window.addEventListener('beforeprint', () => forPaper(true));
window.addEventListener('afterprint', () => forPaper(false));

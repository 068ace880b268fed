// Completes the theme for the keyboard and for screen readers.
document.querySelector('.md-search').setAttribute('aria-label', 'Search');
// Code may scroll, so it takes the focus. Where there is no mouse, the theme takes that away again.
for (const code of document.querySelectorAll('pre > code')) {
  const focusable = () => code.tabIndex < 0 && (code.tabIndex = 0);
  new MutationObserver(focusable).observe(code, { attributeFilter: ['tabindex'] });
  focusable();
}

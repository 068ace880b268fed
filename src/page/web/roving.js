// One tab stop for a group of buttons. Tab goes to the pressed button, else to the first. From there arrow keys, Home
// and End move; up and down go to the nearest button of the line above or below.
function roving(group, css = 'button') {
  const items = () => [...group.querySelectorAll(css)];
  const stop = (item) => { for (const one of items()) one.tabIndex = one === item ? 0 : -1; };
  group.rest = () => stop(items().find((one) => one.getAttribute('aria-pressed') === 'true') || items()[0]);
  group.addEventListener('focusin', (event) => items().includes(event.target) && stop(event.target));
  group.addEventListener('focusout', (event) => { if (!group.contains(event.relatedTarget)) group.rest(); });
  group.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !items().includes(event.target)) return;
    const next = neighbour(items(), event.target, event.key);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  });
  group.rest();
  return group;
}

function neighbour(items, from, key) {
  const at = items.indexOf(from);
  if (key === 'ArrowRight') return items[Math.min(at + 1, items.length - 1)];
  if (key === 'ArrowLeft') return items[Math.max(at - 1, 0)];
  if (key === 'Home') return items[0];
  if (key === 'End') return items.at(-1);
  const sign = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!sign) return null;
  const box = from.getBoundingClientRect();
  const beyond = items.map((item) => [item, item.getBoundingClientRect()])
    .filter(([, other]) => sign * (other.top - box.top) > box.height / 2);
  const distance = ([, other]) => Math.abs(other.top - box.top) * 1e3 + Math.abs(other.left - box.left);
  return beyond.sort((a, b) => distance(a) - distance(b))[0]?.[0] ?? from;
}

// A selector that finds an element again after the view is rebuilt.
function selectorOf(focused) {
  const labelled = (node) => `[aria-label="${CSS.escape(node.getAttribute('aria-label'))}"]`;
  if (focused?.getAttribute?.('aria-label')) return labelled(focused);
  const group = focused?.closest?.('[role=group][aria-label]');
  const name = ['index', 'value', 'head'].find((one) => focused?.dataset?.[one] !== undefined);
  return group && name ? `${labelled(group)} [data-${name}="${CSS.escape(focused.dataset[name])}"]` : null;
}

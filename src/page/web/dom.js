// Building the document. Text is inserted as text, never as markup, because users' words may look like markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return made;
}

// "s_ij = q_i · k_j" with its subscripts, names in italics.
function formula(text) {
  const made = element('span', { class: 'formula' });
  let from = 0;
  for (const found of text.matchAll(/(\p{L}|Σ)_([\p{L}\d]+)|\b([a-zA-Z])\b/gu)) {
    made.append(text.slice(from, found.index));
    if (found[1]) made.append(element(found[1] === 'Σ' ? 'span' : 'i', {}, found[1]), element('sub', {}, found[2]));
    else made.append(element('i', {}, found[3]));
    from = found.index + found[0].length;
  }
  made.append(text.slice(from));
  return made;
}

function withSubscripts(text) {
  const made = element('span');
  for (const part of text.split(/((?<!\p{L})\p{L}_\p{L}(?!\p{L}))/u)) {
    const [name, below] = /^\p{L}_\p{L}$/u.test(part) ? part.split('_') : [part];
    made.append(name, ...(below ? [element('sub', {}, below)] : []));
  }
  return made;
}

const queryWord = (i) => element('b', { class: 'query' }, queryWords[i]);
const keyWord = (j) => element('b', { class: 'key' }, keyWords[j]);

// A row of buttons, one of them pressed.
function choice(label, options, chosen, choose) {
  return roving(element('div', { class: 'choice', role: 'group', 'aria-label': label },
    element('span', { class: 'choice-label', 'aria-hidden': 'true' }, label),
    options.map(([value, text]) => element('button', {
      type: 'button', 'aria-pressed': String(value === chosen()), 'data-value': String(value), onclick: () => choose(value),
    }, text))));
}

function pressed(group, value) {
  for (const button of group.querySelectorAll('button'))
    button.setAttribute('aria-pressed', String(button.dataset.value === String(value)));
  if (!group.contains(document.activeElement)) group.rest?.();
}

// Text for screen readers.
let told = 0;
function tell(text) {
  clearTimeout(told);
  told = setTimeout(() => { document.getElementById('told').textContent = text; }, 150);
}

function download(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = element('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

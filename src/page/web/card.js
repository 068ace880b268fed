// A card: a step's title, formula, shape, pictures, legend and downloads.

function actions(name, canvases, table, heads = []) {
  const slot = element('div', { class: 'numbers', hidden: true });
  const showing = () => {
    if (slot.hidden) slot.replaceChildren(tableOf(table()));
    slot.hidden = !slot.hidden;
    toggle.setAttribute('aria-expanded', String(!slot.hidden));
  };
  const toggle = element('button', { type: 'button', 'aria-expanded': 'false', onclick: showing }, 'Table');
  const buttons = roving(element('div', { class: 'actions', role: 'group', 'aria-label': name + ': copy or save' }, toggle,
    element('button', { type: 'button', onclick: () => downloadCsv(name, table()) }, 'CSV'),
    element('button', { type: 'button', onclick: () => downloadJson(name, table()) }, 'JSON'),
    element('button', { type: 'button', onclick: () => downloadPng(name, canvases(), heads) }, 'PNG')));
  return [buttons, slot];
}

// A table: {rows, columns: labels, corner, matrix}. A cell of null is not on the page.
const MOST_TABLE_CELLS = 20000;
const cellsOf = ({ values, columns }, row) => Array.from(values.slice(row * columns, (row + 1) * columns));
const isEmpty = (value) => value === null || isMasked(value);
const cellText = (value) => (value === null ? '' : isMasked(value) ? 'masked' : exact(value));
function tableOf({ corner, rows, columns, matrix }) {
  const shown = Math.max(1, Math.min(rows.length, Math.floor(MOST_TABLE_CELLS / columns.length)));
  const made = element('table', {},
    element('thead', {}, element('tr', {}, element('th', {}, corner),
      columns.map((label) => element('th', { scope: 'col', title: label }, label)))),
    element('tbody', {}, rows.slice(0, shown).map((label, i) => element('tr', {},
      element('th', { scope: 'row', title: label }, label),
      cellsOf(matrix, i).map((value) => element('td', {}, cellText(value)))))));
  if (shown === rows.length) return made;
  return element('div', {}, made, element('p', {}, `The first ${shown} of ${rows.length} rows; CSV and JSON have all rows.`));
}

// Spreadsheets read cells that begin with these characters as formulas.
function csvText(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return '"' + safe.replaceAll('"', '""') + '"';
}

function downloadCsv(name, { corner, rows, columns, matrix }) {
  const lines = [[corner, ...columns].map(csvText).join(',')];
  rows.forEach((label, i) =>
    lines.push([csvText(label), ...cellsOf(matrix, i).map((value) => (isEmpty(value) ? '' : value))].join(',')));
  download(name + '.csv', 'text/csv', lines.join('\r\n') + '\r\n');
}

function downloadJson(name, { rows, columns, matrix }) {
  const values = rows.map((_, i) => cellsOf(matrix, i).map((value) => (isEmpty(value) ? null : value)));
  download(name + '.json', 'application/json', JSON.stringify({ name, title: heading, rows, columns, values }));
}

// Saves the card's pictures, one below another, under its title.
function downloadPng(name, canvases, captions) {
  const dots = Math.min(window.devicePixelRatio || 1, 3);
  const margin = 16 * dots;
  const line = 22 * dots;
  const width = Math.max(320 * dots, ...canvases.map(([canvas]) => canvas.width)) + 2 * margin;
  const height = canvases.reduce((sum, [canvas]) => sum + canvas.height + line, 2 * line);
  const image = element('canvas', { width, height });
  const pen = image.getContext('2d');
  pen.fillStyle = themeColour('surface');
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = themeColour('ink');
  pen.font = `600 ${14 * dots}px system-ui, sans-serif`;
  pen.textBaseline = 'middle';
  pen.fillText(fitted(`${name} · ${heading}`, width - 2 * margin, pen.font), margin, line);
  let y = 1.5 * line;
  canvases.forEach((layers, i) => {
    pen.font = `${12 * dots}px system-ui, sans-serif`;
    if (captions[i]) pen.fillText(captions[i], margin, y + line / 2);
    y += line;
    for (const layer of layers) pen.drawImage(layer, margin, y);
    y += layers[0].height;
  });
  image.toBlob((blob) => download(name + '.png', 'image/png', blob), 'image/png');
}

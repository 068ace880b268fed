// The picture whose patches are keys, grey under a heat map of their weights: what the chosen row gives them, or what
// they received. Patches are tokens first, first + 1, … of a grid, row by row.
const LEAST_COVER = 0.12;   // opacity of a weight of 0; the rest follows the colour
const MOST_COVER = 0.85;
const WIDEST_PICTURE = 680;   // pixels
const LEAST_TALL = 300;
const ROOM_ABOVE = 400;       // of a window, for what stands around the picture

const isPatch = (place) => place >= page.picture.first && place < page.picture.first + page.picture.rows * page.picture.columns;
function patchName(key) {
  const n = key - page.picture.first;
  return `patch ${Math.floor(n / page.picture.columns)}, ${n % page.picture.columns}`;
}

const pictureView = {
  name: 'Picture',
  build(host) {
    const { rows, columns, uri } = page.picture;
    this.panel = element('aside', { class: 'panel', 'aria-label': 'The row' });
    this.legend = element('div');
    this.image = element('img', { class: 'patched', src: uri, alt: 'the picture that the model sees', draggable: 'false',
      onload: () => this.layOut() });
    this.heat = element('canvas', { 'aria-hidden': 'true' });
    this.marks = element('canvas', { class: 'marks', tabindex: '0', role: 'application', 'aria-roledescription': 'picture',
      'aria-label': `Picture of ${rows} by ${columns} patches; arrow keys move`,
      onpointermove: (event) => this.onMove(event),
      onpointerleave: () => { hideTip(); point(null); },
      onclick: (event) => choose(this.selected(this.placeAt(event))),
      onkeydown: (event) => this.onKey(event) });
    this.node = element('div', { class: 'grid picture' }, this.image, this.heat, this.marks);
    const shade = choice('Shade by', Object.entries(SHADES).map(([name, text]) => [name, text.replace('words', 'patches')]), () => state.shade, (name) => choose({ shade: name }));
    this.words = this.paragraph();
    const take = actions('picture', () => [[this.image, this.heat]], () => this.table());
    host.append(element('div', { class: 'with-panel' }, element('div', { class: 'flow' }, heads.length > 1 && headChooser(),
      element('article', { class: 'card', 'data-step': 'picture' },
        element('header', {}, element('h2', {}, headName(state.head)), element('span', { class: 'shape' }, `${rows} × ${columns} patches`)),
        element('div', { class: 'map-tools' }, shade), element('div', { class: 'figures' }, this.node), this.words,
        element('footer', {}, this.legend, take))), this.panel));
    showChosenHead(host);
    this.layOut();
  },
  // The rows that are no patches, to choose one.
  paragraph() {
    const places = page.query_tokens.map((_, i) => i).filter((i) => (page.cross || !isPatch(i)) && !isHidden('row', i)).slice(0, MOST_WORDS);
    if (!places.length) return '';
    const wordOf = (event) => event.target.closest('.w')?.dataset.index;
    const text = element('p', { class: 'text', tabindex: '0', role: 'application', 'aria-roledescription': 'text',
      'aria-label': 'the other tokens; arrow keys move',
      onpointerover: (event) => event.pointerType !== 'touch' && wordOf(event) && point({ row: Number(wordOf(event)) }),
      onpointerleave: () => point(null),
      onclick: (event) => wordOf(event) && choose({ row: Number(wordOf(event)) }),
      onkeydown: (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
        if (!step) return;
        event.preventDefault();
        const near = places.indexOf(state.row);
        const row = places[Math.max(0, Math.min(places.length - 1, (near < 0 ? 0 : near + step)))];
        choose({ row });
        tell(queryWords[row]);
      } }, places.flatMap((i) => wordsOfText('row', i, [page.query_tokens[i]]).concat(' ')));
    return element('div', { class: 'text-block' }, element('h3', { class: 'soft' }, page.cross ? 'asking' : 'other tokens'), text);
  },
  layOut() {
    const { rows, columns } = page.picture;
    const ratio = this.image.naturalWidth ? this.image.naturalHeight / this.image.naturalWidth : rows / columns;
    this.wide = Math.max(160, Math.min(this.node.parentElement.clientWidth - 6, WIDEST_PICTURE,
      Math.max(LEAST_TALL, window.innerHeight - ROOM_ABOVE) / ratio));
    this.high = this.wide * ratio;
    this.dots = Math.min(window.devicePixelRatio || 1, 2);
    for (const one of [this.image, this.heat, this.marks]) {
      one.style.width = this.wide + 'px';
      one.style.height = this.high + 'px';
    }
    this.node.style.width = this.wide + 'px';
    this.node.style.height = this.high + 'px';
    this.heat.width = Math.round(this.wide * this.dots);
    this.heat.height = Math.round(this.high * this.dots);
    [this.marks.width, this.marks.height] = [this.heat.width, this.heat.height];
    this.marks.dataset.cells = [0, 0, this.wide / columns, this.high / rows].join(' ');
    this.refresh();
  },
  // The numbers of the patches, in their order.
  shares(now) {
    const { first, rows, columns } = page.picture;
    return textView.shares(now).subarray(first, first + rows * columns);
  },
  table() {
    const { rows, columns } = page.picture;
    const names = (count) => Array.from({ length: count }, (_, n) => String(n));
    return { corner: 'patch', rows: names(rows), columns: names(columns), matrix: { rows, columns, values: this.shares(followed()) } };
  },
  placeAt(event) {
    const { first, rows, columns } = page.picture;
    const box = this.marks.getBoundingClientRect();
    const within = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    return first + within((event.clientY - box.top) / box.height, rows) * columns + within((event.clientX - box.left) / box.width, columns);
  },
  // In self-attention a patch is a row, too.
  selected(key) { return page.cross ? { key } : { key, row: Math.min(key, page.query_count - 1) }; },
  onMove(event) {
    if (event.pointerType === 'touch') return;
    const key = this.placeAt(event);
    point({ key });
    showTip(event, `${patchName(key)}: ${exact(textView.shares(followed())[key])}`);
  },
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns } = page.picture;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step) return;
    event.preventDefault();
    const key = isPatch(state.key) ? (isPatch(state.key + step) ? state.key + step : state.key) : page.picture.first;
    choose(this.selected(key));
    tell(`${patchName(key)}: ${exact(textView.shares(followed())[key])}`);
  },
  refresh() {
    const now = followed();
    const { rows, columns, first } = page.picture;
    const shares = this.shares(now);
    const scale = weightScale([{ values: shares, rows: 1, columns: shares.length, keyBegin: 1 }]);
    const pen = this.heat.getContext('2d');
    pen.clearRect(0, 0, this.heat.width, this.heat.height);
    const edge = (n, count, size) => Math.round(n * size / count);
    shares.forEach((share, n) => {
      if (isMasked(share) || Number.isNaN(share)) return;
      const colour = colourNumber(scale, share);
      const [row, column] = [Math.floor(n / columns), n % columns];
      const [x, y] = [edge(column, columns, this.heat.width), edge(row, rows, this.heat.height)];
      pen.globalAlpha = LEAST_COVER + (MOST_COVER - LEAST_COVER) * colour / (COLOURS - 1);
      pen.fillStyle = css(colours()[colour]);
      pen.fillRect(x, y, edge(column + 1, columns, this.heat.width) - x, edge(row + 1, rows, this.heat.height) - y);
    });
    this.mark(now);
    if (this.words) for (const word of this.words.querySelectorAll('.w')) word.classList.toggle('chosen', Number(word.dataset.index) === now.row);
    this.legend.replaceChildren(legend(scale, `${state.shade === 'received' ? 'weight received, in rows' : `share of row ${spelled(now.row)}`}; ` +
      `all patches ${exact(shares.reduce((sum, share) => sum + (share > 0 ? share : 0), 0))}`, shares.some(isMasked)));
    wantRow(state.head, now.row);
    showRow(this.panel, now);
  },
  // Frames the row's own patch, and the key's with dashes.
  mark(now) {
    const { rows, columns, first } = page.picture;
    const pen = this.marks.getContext('2d');
    pen.clearRect(0, 0, this.marks.width, this.marks.height);
    const [wide, high] = [this.marks.width / columns, this.marks.height / rows];
    const frame = (place, name, dashes) => {
      if (!isPatch(place)) return;
      const n = place - first;
      const box = [(n % columns) * wide, Math.floor(n / columns) * high, wide, high];
      for (const [colour, line] of [['surface', 5], [name, 2.5]]) {
        pen.strokeStyle = themeColour(colour);
        pen.lineWidth = line * this.dots;
        pen.setLineDash(colour === name ? dashes.map((size) => size * this.dots) : []);
        pen.strokeRect(...box);
      }
    };
    frame(now.key, 'key', [5, 3]);
    if (!page.cross && state.shade === 'to') frame(now.row, 'query', []);
  },
};

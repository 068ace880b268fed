// The words, shaded by the weights of the chosen word, the weights on it, or the weight that each word received.
const SHADES = {
  to: 'weights that it gives',
  ...(page.tensors['received-0'] && { received: 'weights that words received' }),
};
const MOST_WORDS = 3000;

// A text shows where its words stand, so repeated ones need no numbers. Pieces of a word follow it without a space.
const isPiece = (token) => /^(?:·|##)./.test(token);
function wordsOfText(kind, from, tokens) {
  return tokens.flatMap((token, i) => (isHidden(kind, from + i) ? [] : [i > 0 && !isPiece(token) && ' ',
    element('span', { class: isPiece(token) ? 'w piece' : 'w', 'data-index': from + i },
      isPiece(token) ? token.replace(/^(?:·|##)/, '') : tokenText(token))]));
}

const textView = {
  name: 'Text',
  build(host) {
    this.panel = element('aside', { class: 'panel', 'aria-label': 'The word' });
    this.legend = element('div');
    const shade = choice('Shade by', Object.entries(SHADES), () => state.shade, (name) => choose({ shade: name }));
    this.queries = page.cross && this.paragraph('asking', queryWords, 'row');
    this.keys = this.paragraph(page.cross ? 'attended to' : '', keyWords, page.cross ? 'key' : 'row');
    host.append(element('div', { class: 'with-panel' }, element('div', { class: 'flow' }, element('article', { class: 'card text-card' },
      element('div', { class: 'map-tools' }, shade), this.queries, this.keys, element('footer', {}, this.legend))), this.panel));
    this.layOut();
  },
  // Shows a long text around the chosen word.
  paragraph(name, words, kind) {
    const from = words.length <= MOST_WORDS ? 0 : Math.max(0, Math.min(words.length - MOST_WORDS, state[kind] - MOST_WORDS / 2));
    const shown = (kind === 'row' ? page.query_tokens : page.key_tokens).slice(from, from + MOST_WORDS);
    const wordOf = (event) => event.target.closest('.w')?.dataset.index;
    const text = element('p', { class: 'text', tabindex: '0', role: 'application', 'data-kind': kind, 'aria-roledescription': 'text',
      'aria-label': `${name || 'the words'}; arrow keys move`,
      onpointerover: (event) => event.pointerType !== 'touch' && wordOf(event) && point({ [kind]: Number(wordOf(event)) }),
      onpointerleave: () => point(null),
      onclick: (event) => wordOf(event) && choose({ [kind]: Number(wordOf(event)) }),
      onkeydown: (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -words.length, End: words.length }[event.key];
        if (!step) return;
        event.preventDefault();
        const place = shownPlace(kind, state[kind] + step, step);
        choose({ [kind]: place });
        tell(words[place]);
      } }, wordsOfText(kind, from, shown));
    const more = (place, label) => element('button', { type: 'button', class: 'copy', onclick: () => { choose({ [kind]: place }); redraw(); } }, label);
    return element('div', { class: 'text-block' }, name && element('h3', { class: 'soft' }, name),
      from > 0 && more(Math.max(0, from - 1), `… ${spelled(from)} words before`), text,
      from + shown.length < words.length && more(from + shown.length, `${spelled(words.length - from - shown.length)} words after …`));
  },
  layOut() { this.refresh(); },
  // A long text begins at the chosen word.
  opened() {
    for (const word of stage.querySelectorAll('.w.chosen')) {
      const { top, bottom } = word.getBoundingClientRect();
      if (top < 0 || bottom > window.innerHeight) word.scrollIntoView({ block: 'center' });
    }
  },
  // The shade of each key as a number, NaN if the page has none.
  shares(now) {
    if (state.shade === 'received') return tensor('received-' + state.head)?.values ?? new Float32Array(page.key_count);
    const weights = weightsOf(state.head, now.row);
    if (weights) return weights;
    const some = new Float32Array(page.key_count).fill(NaN);
    for (const [key, weight] of topOf(state.head, now.row, Infinity)) some[key] = weight;
    return some;
  },
  refresh() {
    const now = followed();
    const shares = this.shares(now);
    // A single row: what it attends to, or what the keys received.
    const scale = weightScale([{ values: shares, rows: 1, columns: shares.length }]);
    const palette = colours();
    for (const word of this.keys.querySelectorAll('.w')) {
      const share = shares[word.dataset.index];
      const shown = share > 0;
      const colour = shown && palette[colourNumber(scale, share)];
      word.classList.toggle('is-masked', isMasked(share));
      word.style.background = shown ? css(colour) : '';
      word.style.color = shown ? inkOn(colour) : '';
    }
    for (const [host, kind] of [[this.queries || this.keys, 'row'], ...(page.cross ? [[this.keys, 'key']] : [])]) {
      host.querySelector('.chosen')?.classList.remove('chosen');
      host.querySelector(`.w[data-index="${now[kind]}"]`)?.classList.add('chosen');
    }
    const partly = state.shade === 'to' && !weightsOf(state.head, now.row);
    this.legend.replaceChildren(legend(scale, state.shade === 'received' ? 'weight received, in rows'
      : 'share of the row' + (partly ? `; only the ${report.top_k} keys attended to most are ` +
        `stored` : ''), shares.some(isMasked)));
    wantRow(state.head, now.row);
    showRow(this.panel, now);
  },
};

const views = () => ({
  ...(report && page.picture && { picture: pictureView }),
  ...(page.steps.length && { steps: stepsView, story: storyView }),
  ...(report && queryWords.length && keyWords.length && { text: textView }),
  ...(report && { map: mapView, lines: linesView, ...(heads.length > 1 && { layers: layersView, pair: pairView }) }),
});

// Curves along the sequence. A pixel of a long curve covers many positions; it is filled from their least to their
// largest number, so that no peak is lost.
const CURVES = [
  ['received', 'received', 'key', (value) => `the weight of ${short(value)} ${short(value) === '1' ? 'row' : 'rows'}`],
  ['entropy', 'entropy', 'row', (value) => `${short(value)} nats`],
  ['max_weight', 'largest weight', 'row', (value) => short(value)],
  ['distance', 'mean distance', 'row', (value) => `${short(value)} ${short(value) === '1' ? 'position' : 'positions'}`],
];
const CURVE_HEIGHT = 54;

class Curve {
  constructor([name, title, axis, write]) {
    Object.assign(this, { name, title, axis, write });
    this.base = element('canvas', { class: 'base', 'aria-hidden': 'true' });
    this.marks = element('canvas', { class: 'marks', 'aria-hidden': 'true' });
    this.value = element('span', { class: 'curve-value' });
    Object.assign(this, definitions());
    this.node = element('div', { class: 'curve' },
      element('div', { class: 'curve-name' }, this.link(title), element('span', { class: 'soft' }, `of each ${axis}`),
        this.value), this.slot, element('div', { class: 'grid' }, this.base, this.marks));
    this.marks.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && point({ [axis]: this.placeAt(event) }));
    this.marks.addEventListener('pointerleave', () => point(null));
    this.marks.addEventListener('click', (event) => choose({ [axis]: this.placeAt(event) }));
  }

  layOut(width, seen) {
    this.width = width;
    this.dots = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.marks]) {
      canvas.width = Math.round(width * this.dots);
      canvas.height = Math.round(CURVE_HEIGHT * this.dots);
      canvas.style.width = width + 'px';
      canvas.style.height = CURVE_HEIGHT + 'px';
    }
    this.base.parentElement.style.height = CURVE_HEIGHT + 'px';
    this.paint(seen);
  }

  paint(seen) {
    [this.from, this.to] = this.axis === 'row' ? seen.slice(0, 2) : seen.slice(2);
    const curve = tensor(`${this.name}-${state.head}`);
    const pen = this.base.getContext('2d');
    const { width, height } = this.base;
    pen.clearRect(0, 0, width, height);
    if (!curve) return;
    const skip = this.axis === 'key' && state.scaled !== 'all' ? 1 : 0;
    let most = 0;
    for (let place = skip; place < curve.values.length; place++) if (curve.values[place] > most) most = curve.values[place];
    pen.fillStyle = themeColour('line');
    pen.fillRect(0, height - 1, width, 1);
    pen.fillStyle = themeColour('curve');
    const up = (height - 4) / (most || 1);
    const share = (this.to - this.from) / width;
    for (let x = 0; x < width; x++) {
      const begin = Math.floor(this.from + x * share);
      const end = Math.min(curve.values.length, Math.max(begin + 1, Math.floor(this.from + (x + 1) * share)));
      let low = Infinity;
      let high = -Infinity;
      for (let place = begin; place < end; place++) {
        const value = curve.values[place];
        if (value < low) low = value;
        if (value > high) high = value;
      }
      if (high === -Infinity) continue;
      const top = Math.max(0, height - 1 - Math.min(high, most * 1.02) * up);
      pen.globalAlpha = 0.35;
      pen.fillRect(x, top, 1, height - top);
      pen.globalAlpha = 1;
      pen.fillRect(x, top, 1, Math.max(this.dots, (Math.min(high, most) - low) * up));
    }
  }

  mark(now) {
    const place = now[this.axis];
    const pen = this.marks.getContext('2d');
    pen.clearRect(0, 0, this.marks.width, this.marks.height);
    const value = curveValue(this.name, state.head, place);
    this.value.textContent = tensor(`${this.name}-${state.head}`) ? this.write(value) : '';
    if (place < this.from || place >= this.to) return;
    pen.fillStyle = themeColour(this.axis === 'row' ? 'query' : 'key');
    const across = this.marks.width / (this.to - this.from);
    pen.fillRect((place + 0.5 - this.from) * across - this.dots, 0, 2 * this.dots, this.marks.height);
  }

  placeAt(event) {
    const box = this.marks.getBoundingClientRect();
    const place = Math.floor(this.from + (event.clientX - box.left) / box.width * (this.to - this.from));
    return Math.max(0, Math.min((this.axis === 'row' ? page.query_count : page.key_count) - 1, place));
  }
}

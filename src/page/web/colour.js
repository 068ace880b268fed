// Maps numbers to colours. Both colour maps are perceptually uniform and keep their order for colour-blind readers.
//
// Control points are every eighth of 256 colours, with linear interpolation between: viridis (Smith & van der Walt,
// 2015, matplotlib) and cividis (Nuñez, Anderton & Renslow, 2018, doi:10.1371/journal.pone.0199239).
const PALETTES = {
  viridis: '440154 470d60 48186a 482374 472d7b 453681 424086 3f4989 3b528b 375a8d 33638d 2f6a8e 2c728e 297a8e ' +
    '26818e 23898e 21908c 1f988b 1f9f88 21a685 28ae80 31b57b 3ebc74 4cc26c 5dc963 6ece58 82d34c 96d83f abdc32 ' +
    'c0df24 d5e21a eae51a fde725',
  cividis: '00224e 00285b 002e6a 043371 1a386f 273e6e 32436d 3b496c 434e6c 4b546c 52596d 5a5f6e 61656f 686a71 ' +
    '6f7073 757676 7c7b78 848179 8b8778 938d78 9b9376 a39a75 aba072 b3a670 bbad6c c3b469 ccba64 d4c15f ddc958 ' +
    'e6d051 efd748 f8df3c fee838',
};
const COLOURS = 256;

function paletteOf(name) {
  const points = PALETTES[name].split(' ').map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const colours = [];
  for (let n = 0; n < COLOURS; n++) {
    const at = (n / (COLOURS - 1)) * (points.length - 1);
    const below = Math.min(Math.floor(at), points.length - 2);
    colours.push(points[below].map((from, i) => Math.round(from + (points[below + 1][i] - from) * (at - below))));
  }
  return colours;
}

const palettes = {};
function colours() {
  const name = state.colours;
  return (palettes[name] ??= paletteOf(name));
}

// A scale maps a value to a colour index. On a logarithmic scale values under `low` get the lowest colour.
const DECADES = 5;
function makeScale(low, high, log) {
  if (!(high > low)) high = low + (low === 0 ? 1 : Math.abs(low));
  if (!log) return { low, high, log, share: (value) => (value - low) / (high - low) };
  const least = Math.max(low, high / 10 ** DECADES);
  const span = Math.log(high / least) || 1;
  return { low: least, high, log, share: (value) => (value > 0 ? Math.log(value / least) / span : 0) };
}

function colourNumber(scale, value) {
  const share = scale.share(value);
  return share >= 1 ? COLOURS - 1 : share > 0 ? Math.floor(share * COLOURS) : 0;
}

const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
// Dark text on light colours, light text on dark ones.
const inkOn = ([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? '#10131a' : '#ffffff');

// A theme's colour by its name in page.css, looked up once for each theme.
const themeColours = new Map();
function themeColour(name) {
  if (!themeColours.has(name))
    themeColours.set(name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
  return themeColours.get(name);
}

// The hatching of masked cells, which are not zeros.
function hatch(context) {
  const size = 6;
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = themeColour('masked');
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = themeColour('hatch');
  pen.lineWidth = 1.1;
  for (const shift of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
    pen.stroke();
  }
  return context.createPattern(tile, 'repeat');
}

// The legend of a scale: colours, ends, unit, and the hatching where cells are masked.
function legend(scale, unit, masked) {
  const bar = element('canvas', { class: 'legend-bar', width: COLOURS, height: 1, 'aria-hidden': 'true' });
  const pen = bar.getContext('2d');
  colours().forEach((colour, n) => {
    pen.fillStyle = css(colour);
    pen.fillRect(n, 0, 1, 1);
  });
  const low = scale.log ? '≤ ' + short(scale.low) : short(scale.low);
  return element('div', { class: 'legend' },
    element('span', {}, low), bar, element('span', {}, short(scale.high)),
    element('span', { class: 'unit' }, unit + (scale.log ? ', log scale' : '')),
    masked && element('span', { class: 'masked-key' }, element('i', {}), 'masked'));
}

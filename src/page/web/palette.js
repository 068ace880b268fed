// Palettes. Each has COLOURS colours, from the least number to the largest.
//
// viridis (Smith & van der Walt, 2015, matplotlib) and cividis (Nuñez, Anderton & Renslow, 2018,
// doi:10.1371/journal.pone.0199239) are given by every eighth of their 256 colours. The others begin at the ground of
// the page, which is 0, and run to an ink: blue for a share, blue or rust for a number above or below 0. Their
// lightness changes evenly in Oklab (Ottosson, 2020), so they keep their order for colour-blind readers.
const PALETTES = {
  blue: null,
  viridis: '440154 470d60 48186a 482374 472d7b 453681 424086 3f4989 3b528b 375a8d 33638d 2f6a8e 2c728e 297a8e ' +
    '26818e 23898e 21908c 1f988b 1f9f88 21a685 28ae80 31b57b 3ebc74 4cc26c 5dc963 6ece58 82d34c 96d83f abdc32 ' +
    'c0df24 d5e21a eae51a fde725',
  cividis: '00224e 00285b 002e6a 043371 1a386f 273e6e 32436d 3b496c 434e6c 4b546c 52596d 5a5f6e 61656f 686a71 ' +
    '6f7073 757676 7c7b78 848179 8b8778 938d78 9b9376 a39a75 aba072 b3a670 bbad6c c3b469 ccba64 d4c15f ddc958 ' +
    'e6d051 efd748 f8df3c fee838',
};
const COLOURS = 256;

const rgbOf = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
const linear = (byte) => (byte <= 10.31475 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
const byteOf = (light) => Math.round(255 * Math.max(0, Math.min(1,
  light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055)));
function toOklab(rgb) {
  const [r, g, b] = rgb.map(linear);
  const [l, m, s] = [0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
    0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
    0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b].map(Math.cbrt);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}
function fromOklab([light, a, b]) {
  const [l, m, s] = [light + 0.3963377774 * a + 0.2158037573 * b, light - 0.1055613458 * a - 0.0638541728 * b,
    light - 0.0894841775 * a - 1.291485548 * b].map((x) => x ** 3);
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s].map(byteOf);
}

const mixed = (from, to, share) => from.map((x, i) => x + (to[i] - x) * share);

// `count` colours from the ground through `mid` to `ink`, evenly in lightness.
function ramp(count, mid, ink) {
  const [from, over, to] = ['surface', mid, ink].map((name) => toOklab(rgbOf(themeColour(name).slice(1))));
  const bend = (over[0] - from[0]) / (to[0] - from[0]);
  return Array.from({ length: count }, (_, n) => {
    const share = n / (count - 1);
    return fromOklab(share < bend ? mixed(from, over, share / bend) : mixed(over, to, (share - bend) / (1 - bend)));
  });
}

function tabled(name) {
  const points = PALETTES[name].split(' ').map(rgbOf);
  return Array.from({ length: COLOURS }, (_, n) => {
    const at = (n / (COLOURS - 1)) * (points.length - 1);
    const below = Math.min(Math.floor(at), points.length - 2);
    return mixed(points[below], points[below + 1], at - below).map(Math.round);
  });
}

const MAKERS = {
  blue: () => ramp(COLOURS, 'blue-mid', 'blue-ink'),
  signed: () => [...ramp(COLOURS / 2, 'rust-mid', 'rust-ink').reverse(), ...ramp(COLOURS / 2, 'blue-mid', 'blue-ink')],
};
let palettes = {};
const palette = (name) => (palettes[name] ??= MAKERS[name] ? MAKERS[name]() : tabled(name));
// The chosen palette, and the palette of a scale: signed numbers have their own.
const colours = () => palette(state.colours);
const coloursOf = (scale) => (scale.signed ? palette('signed') : colours());

const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
// Black or white, whichever has more contrast: at least 4.5:1 (WCAG 2's relative luminance).
function inkOn(rgb) {
  const [red, green, blue] = rgb.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000000' : '#ffffff';
}

// A theme's colour by its name in page.css, looked up once for each theme.
const themeColours = new Map();
function themeColour(name) {
  if (!themeColours.has(name))
    themeColours.set(name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
  return themeColours.get(name);
}
function forgetColours() {
  themeColours.clear();
  palettes = {};
}

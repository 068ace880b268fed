// Numbers in the cells of a picture, if all shown numbers fit.
const NUMBER_FONTS = [11, 10].map((size) => `${size}px system-ui, "Segoe UI", "DejaVu Sans", sans-serif`);
const LEAST_NUMBERED = [24, 14];  // smallest cell, in pixels: width, height
const NUMBER_GAP = 6;             // pixels between two numbers
const MOST_NUMBERS = 4000;
const NUMBER_STYLES = [tiny, (value) => tiny(value).replace(/^(−?)0\./, '$1.').replace(/^1\.00$/, '1'),
  (value) => minus(String(Number(value.toFixed(1))))];

// Draws the numbers of rows r0 to r1 and columns c0 to c1 of a matrix, which fill the box; its edges may cut cells.
function paintNumbers(pen, matrix, scale, [r0, r1, c0, c1], [x, y, width, height]) {
  const [across, down] = [width / (c1 - c0), height / (r1 - r0)];
  if (across < LEAST_NUMBERED[0] || down < LEAST_NUMBERED[1] || (r1 - r0) * (c1 - c0) > MOST_NUMBERS) return;
  const cells = [];
  for (let row = Math.max(0, Math.floor(r0)); row < Math.min(r1, matrix.rows); row++)
    for (let column = Math.max(0, Math.floor(c0)); column < Math.min(c1, matrix.columns); column++)
      if (!isMasked(at(matrix, row, column))) cells.push([row, column, at(matrix, row, column)]);
  const style = fittingStyle(cells.map(([, , value]) => value), across - NUMBER_GAP);
  if (!style) return;
  const palette = coloursOf(scale);
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.font = style.font;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  for (const [row, column, value] of cells) {
    if (/^−?0?(\.0*)?$/.test(style.write(value))) continue;  // zeros are blank; masked cells are hatched
    pen.fillStyle = Number.isNaN(value) ? '#ffffff' : inkOn(palette[colourNumber(scaleOfRow(scale, matrix, row), value)]);
    const [right, below] = [(column + 0.5 - c0) * across, (row + 0.5 - r0) * down];
    // A cell that the edge cuts may have no room for its number.
    if (Math.min(right, width - right) < across / 3 || Math.min(below, height - below) < LEAST_NUMBERED[1] / 2) continue;
    pen.fillText(style.write(value), x + right, y + below + 0.5);
  }
  pen.restore();
}

// The longest format in which all of these numbers fit into so many pixels.
function fittingStyle(values, room) {
  for (const write of NUMBER_STYLES)
    for (const font of NUMBER_FONTS) {
      ruler.font = font;
      if (values.every((value) => ruler.measureText(write(value)).width <= room)) return { write, font };
    }
  return null;
}

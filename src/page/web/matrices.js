// The matrices of the chosen head beside their products: W_q, W_k, W_v, and W_o. A row makes one number of each vector.
const MATRIX_OF = { query: 'W_q', key: 'W_k', value: 'W_v', output: 'W_o' };

function matrixOfStep(name) {
  const weight = tensor('weight-' + (name === 'output' ? 'out_proj' : name) + '.weight');
  if (!weight) return null;
  const whole = matrixOf(weight);
  if (name === 'output') return whole;
  const rows = stepMatrix(name).columns;
  const heads = stepTensor(name).shape[0];
  const from = Math.floor((state.head * heads) / headCount()) * rows;
  return { rows, columns: whole.columns, values: whole.values.subarray(from * whole.columns, (from + rows) * whole.columns) };
}

// A figure below the card's own; nothing if the page has no weight matrices.
function matrixFigure(step, grids) {
  const name = MATRIX_OF[step.name];
  const matrix = name && matrixOfStep(step.name);
  if (!matrix) return null;
  const grid = new Grid({
    matrix, scale: signedScale(matrix.values), square: false, rowLabels: partLabels(matrix.rows),
      columnLabels: null,
    label: `${name.replace('_', ' ')}, ${matrix.rows} by ${matrix.columns}; arrow keys move`,
    marks: (now) => {
      const row = now.step === step.name ? Math.min(now.at, matrix.rows - 1) : 0;
      return { rows: [[row, ['key', 'value'].includes(step.name) ? 'key' : 'query']], columns: [], cell: null, cursor: [row,
        Math.min(matrixColumn, matrix.columns - 1)] };
    },
    place: (row, column) => {
      matrixColumn = column;
      return { step: step.name, at: row };
    },
    describe: (row, column) => `${name.replace('_', ' ')} [${row}, ${column}]: ${exact(at(matrix, row, column))}`,
  });
  const host = element('div', { class: 'figures' }, element('figure', { class: 'matrix' },
    element('figcaption', {}, formula(name), ` [${matrix.rows}, ${matrix.columns}]: each row makes one number of the vectors ` +
      `above`), grid.node));
  grids.push({ grid, all: false, chosen: false, host });
  return host;
}
let matrixColumn = 0;

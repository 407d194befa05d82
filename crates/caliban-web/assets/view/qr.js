// A QR code as one path of horizontal runs. Pure.

/** Width of the light margin that cameras need. */
const MARGIN = 4;

/** @param {string[]} rows rows of `1` (dark) and `0` */
export function qrPath(rows) {
  let path = "";
  rows.forEach((row, y) => {
    for (const run of row.matchAll(/1+/g)) path += `M${run.index} ${y}h${run[0].length}v1h-${run[0].length}z`;
  });
  return path;
}

/** The view box. @param {string[]} rows */
export const qrBox = (rows) => `${-MARGIN} ${-MARGIN} ${rows.length + 2 * MARGIN} ${rows.length + 2 * MARGIN}`;

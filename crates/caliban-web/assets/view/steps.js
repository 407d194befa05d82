// A value over time as the path of a step line, in a box of 100 by 100. Pure.

/** @typedef {{ at: number, value: number | null }} Point */

/** @param {Point[]} points in the order of time @param {number} most the value at the top @returns {{ line: string, area: string }} */
export function steps(points, most) {
  const known = points.filter((point) => point.value !== null);
  if (known.length === 0 || most <= 0) return { line: "", area: "" };
  const [from, to] = [known[0].at, known[known.length - 1].at];
  const x = (/** @type {Point} */ point) => (to === from ? 0 : (100 * (point.at - from)) / (to - from)).toFixed(2);
  const y = (/** @type {Point} */ point) => (100 - (100 * /** @type {number} */ (point.value)) / most).toFixed(2);
  let line = `M${x(known[0])} ${y(known[0])}`;
  for (const point of known.slice(1)) line += `H${x(point)}V${y(point)}`;
  if (to === from) line += "H100";
  return { line, area: `${line}V100H0Z` };
}

/** A round number that is not below the value: 1, 2 or 5 times a power of ten. @param {number} value */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((it) => it * power >= value * 0.999999) ?? 10) * power;
}

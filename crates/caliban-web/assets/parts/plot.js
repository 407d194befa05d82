// A plot of steps, as SVG in the colours of the style sheet.
import { html } from "../base/html.js";
import { clock } from "../base/format.js";
import { ceiling, steps } from "../view/steps.js";

/** A colour of the style sheet as a canvas needs it. @param {string} name */
export function colour(name) {
  const probe = document.createElement("i");
  probe.className = `c-${name}`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** @param {{ points: import("../view/steps.js").Point[], tone: string, words: (value: number) => string, label: string }} props */
export function Steps({ points, tone, words, label }) {
  const most = ceiling(Math.max(...points.map((point) => point.value ?? 0)));
  const { line, area } = steps(points, most);
  const ends = [points[0], points[points.length - 1]];
  return html`<figure class="plot" role="img" aria-label=${label}>
    <span class="plot-y dim">${words(most)}</span><span class="plot-y mid dim">${words(most / 2)}</span>
    <svg class=${`c-${tone}`} viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true"><path class="plot-grid" d="M0 0H100M0 50H100M0 100H100" /><path class="plot-area" d=${area} /><path class="plot-line" d=${line} /></svg>
    <figcaption class="dim"><span>${clock(ends[0].at)}</span><span>${clock(ends[1].at)}</span></figcaption>
  </figure>`;
}

// A plot: uPlot in the colours of the page, drawn anew when theme or width change.
import { html, useEffect, useRef } from "../base/html.js";
import { theme } from "../base/prefs.js";

/** A colour of the style sheet as the canvas needs it. @param {string} name */
export function colour(name) {
  const probe = document.createElement("i");
  probe.className = `c-${name}`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** @param {{ make: (uPlot: any, colour: (name: string) => string) => { options: any, data: any }, height?: number, label: string }} props */
export function Plot({ make, height = 180, label }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const mode = theme.value;
  useEffect(() => {
    let plot = /** @type {any} */ (null);
    let isGone = false;
    const draw = async () => {
      const { default: uPlot } = await import("../vendor/uplot.js");
      if (isGone || !box.current) return;
      plot?.destroy();
      const { options, data } = make(uPlot, colour);
      plot = new uPlot({ width: box.current.clientWidth, height, legend: { show: false }, ...options }, data, box.current);
    };
    draw();
    const seen = new ResizeObserver(() => plot && box.current && plot.setSize({ width: box.current.clientWidth, height }));
    if (box.current) seen.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      isGone = true;
      seen.disconnect();
      scheme.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [make, mode]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${label}></div>`;
}

/** Axes in the page's colours. @param {(name: string) => string} tint @param {any[]} axes */
export const axes = (tint, axes) => axes.map((axis) => ({ stroke: tint("fg3"), font: "11px system-ui", grid: { stroke: tint("line"), width: 1 }, ticks: { show: false }, ...axis }));

// A simple chart, shown at once: a line and its axes, until plotly, which is large, is loaded.

import { drawn } from "./dom.js";
import { number } from "./format.js";

const MARGIN = { left: 56, right: 12, top: 30, bottom: 38 }; // As in plotly's layout, so that nothing jumps.

/** A line as an SVG of this size. Null values are skipped. */
export function quickChart({ x, y }, { isLog, width, height }) {
  const points = x.map((at, index) => [at, y[index]]).filter(([, value]) => value !== null && (!isLog || value > 0));
  const svg = drawn("svg", { class: "quick", width, height, "aria-hidden": "true" });
  if (points.length < 2) return svg;
  const across = axis(points.map(([at]) => at), false, MARGIN.left, width - MARGIN.right);
  const up = axis(points.map(([, value]) => value), isLog, height - MARGIN.bottom, MARGIN.top);
  for (const { at, text } of up.ticks) {
    svg.append(drawn("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
    svg.append(drawn("text", { x: MARGIN.left - 6, y: at, "text-anchor": "end", "dominant-baseline": "middle" }, text));
  }
  for (const { at, text } of across.ticks) {
    svg.append(drawn("text", { x: at, y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, text));
  }
  const line = points.map(([at, value]) => `${across.place(at).toFixed(1)},${up.place(value).toFixed(1)}`);
  svg.append(drawn("polyline", { points: line.join(" ") }));
  return svg;
}

/** A function from values to positions between two ends, and the ticks of the axis. */
function axis(values, isLog, from, to) {
  const scale = isLog ? Math.log10 : (value) => value;
  const low = scale(values.reduce((a, b) => Math.min(a, b)));
  const span = scale(values.reduce((a, b) => Math.max(a, b))) - low || 1;
  const place = (value) => from + ((to - from) * (scale(value) - low)) / span;
  const named = isLog ? powers(low, low + span) : rounds(low, low + span);
  return { place, ticks: named.map((value) => ({ at: place(value), text: number(value, 3) })) };
}

/** About five round numbers between two. */
function rounds(low, high) {
  const rough = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

/** Powers of ten between two exponents; if there are few, also their multiples by 2 and 5. */
function powers(low, high) {
  const every = Math.ceil((high - low) / 7);
  const factors = high - low < 1.5 ? [1, 2, 5] : [1];
  const exponents = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, i) => Math.floor(low) + i);
  return exponents
    .filter((exponent) => exponent % every === 0)
    .flatMap((exponent) => factors.map((factor) => factor * 10 ** exponent))
    .filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
}

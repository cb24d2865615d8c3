// Parallel coordinates: a line for each point of a sweep through its settings to its result. Each line is a link.
// An SVG of our own, since plotly's needs functions made from text, which the policy of the page forbids.

import { drawn } from "./dom.js";
import { number, plain, runAddress } from "./format.js";
import { colorAt, isWide, sortedValues, valueOf } from "./points.js";

const SIZE = { width: 1000, height: 340, top: 46, bottom: 16, side: 84 };
const MOST_TICKS = 12;

/** The drawing; axes are names of settings, and the last axis is the measure. */
export function parallel(points, axes, measure, words) {
  const shown = points.filter((point) => valueOf(point, measure) !== null);
  const columns = [
    ...axes.map((name) => ({ name, values: shown.map(({ settings }) => settings[name] ?? null) })),
    { name: words, values: shown.map((point) => valueOf(point, measure)), isResult: true },
  ].map(withScale);
  const label = `Parallel coordinates of ${shown.length} points, coloured by ${words}`;
  const svg = drawn("svg", { class: "parallel", viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "group", "aria-label": label });
  const gap = (SIZE.width - 2 * SIZE.side) / Math.max(1, columns.length - 1);
  const x = (index) => SIZE.side + gap * index;
  const results = columns.at(-1);
  const lines = shown.map((point, index) => {
    const places = columns.map(({ place, values }, at) => `${x(at).toFixed(1)},${place(values[index]).toFixed(1)}`);
    const values = columns.map(({ name, values: all }) => `${name} ${show(all[index])}`).join(", ");
    const link = drawn("a", { href: runAddress(point.row.run), "aria-label": `${point.name}: ${values}` },
      drawn("title", {}, `${point.name}\n${values.replaceAll(", ", "\n")}`),
      drawn("polyline", { points: places.join(" "), class: "near" }),
      drawn("polyline", { points: places.join(" "), stroke: colorAt(results.part(results.values[index])) }));
    return { link, value: results.values[index] };
  });
  svg.append(...lines.map(({ link }) => link));
  columns.forEach((column, index) => svg.append(...axis(column, x(index), index === columns.length - 1)));
  return svg;
}

const show = (value) => String(typeof value === "number" ? number(value, 3) : plain(value) ?? "none");

/** An axis with numbers is linear or logarithmic; one with words has a place for each. */
function withScale(column) {
  const different = sortedValues(column.values);
  const areNumbers = different.length > 0 && different.every((value) => typeof value === "number");
  const isLog = areNumbers && isWide(different);
  const isEven = !areNumbers || (different.length <= MOST_TICKS && !column.isResult);
  const scale = isLog ? Math.log : (value) => value;
  const [low, high] = [scale(different[0]), scale(different.at(-1))];
  const part = isEven
    ? (value) => (different.length < 2 ? 0.5 : different.findIndex((each) => JSON.stringify(each) === JSON.stringify(value)) / (different.length - 1))
    : (value) => (high > low ? (scale(value) - low) / (high - low) : 0.5);
  const place = (value) => SIZE.height - SIZE.bottom - part(value) * (SIZE.height - SIZE.top - SIZE.bottom);
  const rounded = different.every(Number.isInteger) ? Math.round : (value) => value;
  const ticks = isEven ? thinned(different) : spaced(low, high).map((value) => rounded(isLog ? Math.exp(value) : value));
  return { ...column, place, part, ticks };
}

const spaced = (low, high) => (high > low ? [0, 0.25, 0.5, 0.75, 1].map((part) => low + part * (high - low)) : [low]);
const thinned = (values) => values.filter((_, at) => at % Math.ceil(values.length / MOST_TICKS) === 0);

function axis({ name, ticks, place }, x, isLast) {
  const [anchor, shift] = isLast ? ["start", 8] : ["end", -8];
  const line = drawn("line", { x1: x, x2: x, y1: SIZE.top, y2: SIZE.height - SIZE.bottom });
  const title = drawn("text", { x, y: 20, "text-anchor": "middle", class: "axis-name" }, name);
  const words = ticks.map((value) => drawn("text", { x: x + shift, y: place(value), "text-anchor": anchor, "dominant-baseline": "middle" }, show(value)));
  return [line, title, ...words];
}

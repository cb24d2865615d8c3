// A heat map of a sweep: two settings across and up, the colour a number of the points there. A click opens the best.

import { drawChart, layout } from "./charts.js";
import { label, number, plain, runAddress } from "./format.js";
import { isWide, plotlyScale, sortedValues, valueOf } from "./points.js";

const MOST_CELLS_A_SIDE = 40;

/** Draws into an element. A search over ranges has no cells, so its points are dots; with `up` null, by their number. */
export async function heatMap(element, points, { across, up, measure, words, isLower }) {
  const shown = points.filter((point) => valueOf(point, measure) !== null);
  const values = shown.map((point) => valueOf(point, measure));
  const different = (axis) => sortedValues(shown.map(({ settings }) => settings[axis] ?? null));
  const [columns, rows] = [different(across), up === null ? values : different(up)];
  const isFull = columns.length * rows.length <= 2 * shown.length;
  const isGrid = up !== null && isFull && Math.max(columns.length, rows.length) <= MOST_CELLS_A_SIDE;
  const scale = colors(values);
  const trace = isGrid ? cells(shown, { across, up, columns, rows, measure, isLower, scale, words })
    : dots(shown, { across, up, measure, scale, words });
  const base = layout({ legend: false, xTitle: label(across) });
  const areNumbers = (all) => all.every((value) => typeof value === "number");
  const kind = (all) => ({ type: isGrid || !areNumbers(all) ? "category" : isWide(all) ? "log" : "linear" });
  const more = { showgrid: !isGrid, autorange: true, exponentformat: "e" };
  const chart = {
    ...base, margin: { ...base.margin, t: 16, r: 12 },
    xaxis: { ...base.xaxis, ...kind(columns), ...more }, yaxis: { ...base.yaxis, ...kind(rows), ...more, title: { text: label(up ?? words), standoff: 16 } },
  };
  delete chart.yaxis2;
  // Another kind of trace needs a chart of its own.
  if (element.data && element.data[0].type !== trace.type) window.Plotly.purge(element);
  await drawChart(element, [trace], chart);
  if (!element.on || element.isLinked) return;
  element.isLinked = true;
  element.on("plotly_click", ({ points: [at] }) => {
    const run = at?.data.type === "heatmap" ? at.data.runs[at.pointIndex[0]][at.pointIndex[1]] : at?.data.runs[at.pointIndex];
    if (run) location.hash = runAddress(run);
  });
}

/** The colours are those of the logarithm where the numbers span powers of ten. */
function colors(values) {
  const isLog = isWide(values);
  const of = isLog ? Math.log10 : (value) => value;
  const scaled = values.map(of);
  const [low, high] = [scaled.reduce((a, b) => Math.min(a, b), Infinity), scaled.reduce((a, b) => Math.max(a, b), -Infinity)];
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => low + part * (high - low));
  const bar = { thickness: 14, outlinewidth: 0, tickvals: ticks, ticktext: ticks.map((tick) => number(isLog ? 10 ** tick : tick, 3)) };
  return { of, low, high, bar };
}

function cells(shown, { across, up, columns, rows, measure, isLower, scale, words }) {
  const text = (value) => label(String(plain(value) ?? "none"));
  const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b);
  const found = rows.map((row) => columns.map((column) => shown.filter(({ settings }) => same(settings[up], row) && same(settings[across], column))));
  const mean = (of) => of.reduce((sum, point) => sum + valueOf(point, measure), 0) / of.length;
  const best = (of) => of.toSorted((a, b) => (isLower ? 1 : -1) * (valueOf(a, measure) - valueOf(b, measure)))[0];
  const each = (make) => found.map((row) => row.map((of) => (of.length ? make(of) : null)));
  const few = rows.length * columns.length <= 150;
  return {
    type: "heatmap", x: columns.map(text), y: rows.map(text), z: each((of) => scale.of(mean(of))), zmin: scale.low, zmax: scale.high,
    colorscale: plotlyScale, colorbar: scale.bar, xgap: 2, ygap: 2, hoverongaps: false,
    text: each((of) => number(mean(of), 3)).map((row) => row.map((cell) => cell ?? "")), texttemplate: few ? "%{text}" : "", textfont: { size: 13 },
    runs: each((of) => best(of).row.run),
    customdata: each((of) => (of.length > 1 ? `mean of ${of.length} points, best: ${label(best(of).name)}` : label(of[0].name))),
    hovertemplate: `${label(across)} %{x}<br>${label(up)} %{y}<br>${label(words)} %{text}<br>%{customdata}<extra></extra>`,
  };
}

function dots(shown, { across, up, measure, scale, words }) {
  const values = shown.map((point) => valueOf(point, measure));
  const along = (axis) => shown.map(({ settings }) => (typeof settings[axis] === "number" ? settings[axis] : label(plain(settings[axis]) ?? "none")));
  return {
    type: "scatter", mode: "markers", x: along(across), y: up === null ? values : along(up),
    marker: { size: 12, color: values.map(scale.of), cmin: scale.low, cmax: scale.high, colorscale: plotlyScale, showscale: true, colorbar: scale.bar },
    text: values.map((value) => number(value, 4)), runs: shown.map(({ row }) => row.run), customdata: shown.map(({ name }) => label(name)),
    hovertemplate: `${label(across)} %{x}<br>${up === null ? "" : `${label(up)} %{y}<br>`}${label(words)} %{text}<br>%{customdata}<extra></extra>`,
  };
}

// Curves in plotly: the traces of a metric, and the colours of a light or a dark page.

import { label } from "./format.js";
import { quickChart } from "./quick.js";

const PARTS = ["step", "time", "low", "at_low", "high", "at_high", "mean", "log_mean", "bad"];
export const COLORS = ["#2a7de1", "#e8833a", "#2e9e5b", "#d1453b", "#8957e5", "#b8860b", "#d6409f", "#0d9488",
  "#6e7781", "#a3673f", "#5470c6", "#91a736"];
const CONFIG = {
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

const LONGEST_PAUSE_MS = 2000;

let loading = null;

/** Loads plotly, which the board serves, once. */
export function preparePlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "static/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.min.js could not be loaded; reload the page"));
    document.head.append(script);
  });
  return loading;
}

/** The curves of one run, in the buckets that the board sends: all of them first, then new ones. */
export class Curves {
  constructor() {
    this.metrics = {};
  }

  take(series) {
    for (const [name, news] of Object.entries(series)) {
      const curve = (this.metrics[name] ??= Object.fromEntries(PARTS.map((part) => [part, []])));
      for (const part of PARTS) {
        curve[part].length = news.from;
        for (const value of news[part]) curve[part].push(value);
      }
    }
  }
}

/** The minimum and the maximum of each bucket, at their steps: a line that keeps every spike. */
export function rawLine(curve, byTime) {
  const x = [];
  const y = [];
  for (let at = 0; at < curve.step.length; at++) {
    const ends = [[curve.at_low[at], curve.low[at]], [curve.at_high[at], curve.high[at]]].sort((a, b) => a[0] - b[0]);
    for (const [step, value] of ends[0][0] === ends[1][0] ? [ends[0]] : ends) {
      x.push(byTime ? curve.time[at] : step);
      y.push(value);
    }
  }
  return { x, y };
}

/** The mean of the buckets around each one; on a log axis the mean of the logarithms, as in the report. */
export function smoothLine(curve, window, isLog, byTime) {
  const values = isLog ? curve.log_mean.map((value) => (value === null ? null : Math.log(value))) : curve.mean;
  const half = Math.floor(window / 2);
  const sums = [0];
  const counts = [0];
  for (const value of values) {
    sums.push(sums.at(-1) + (value ?? 0));
    counts.push(counts.at(-1) + (value === null ? 0 : 1));
  }
  const y = values.map((_, at) => {
    const [first, end] = [Math.max(0, at - half), Math.min(values.length, at + half + 1)];
    const mean = (sums[end] - sums[first]) / (counts[end] - counts[first]);
    return Number.isFinite(mean) ? (isLog ? Math.exp(mean) : mean) : null;
  });
  return { x: byTime ? curve.time : curve.step, y };
}

/** Whether a log axis can show a curve: some values are positive and none is negative. */
export function canBeLog(curve) {
  return curve.high.some((value) => value > 0) && curve.low.every((value) => value === null || value >= 0);
}

/** The number of powers of ten that some curves span. */
export function decades(curves) {
  const shown = curves.flatMap((curve) => [...curve.low, ...curve.high]).filter((value) => value > 0);
  return shown.length ? Math.log10(shown.reduce((a, b) => Math.max(a, b)) / shown.reduce((a, b) => Math.min(a, b))) : 0;
}

/** The traces of a metric: thin through its extremes, thick through its smoothed mean, crosses where it was not finite. */
export function metricTraces(curve, { color, name, isLog, byTime, smoothing, showRaw = true, shape = "linear" }) {
  const window = Math.round(smoothing * curve.step.length);
  const isSmooth = window > 1;
  const few = curve.step.length < 60;
  const traces = [];
  const common = { type: "scatter", name: label(name), legendgroup: name };
  if (showRaw || !isSmooth) {
    traces.push({ ...common, ...rawLine(curve, byTime), mode: few ? "lines+markers" : "lines", showlegend: !isSmooth,
      line: { color, width: isSmooth ? 1 : 1.5, shape }, marker: { color, size: 4 }, opacity: isSmooth ? 0.35 : 1 });
  }
  if (isSmooth) {
    traces.push({ ...common, ...smoothLine(curve, window, isLog, byTime), mode: "lines", line: { color, width: 2.25 } });
  }
  const bad = curve.bad.flatMap((count, at) => (count ? [at] : []));
  if (bad.length) {
    traces.push({ type: "scatter", mode: "markers", yaxis: "y2", showlegend: false, cliponaxis: false,
      x: bad.map((at) => (byTime ? curve.time[at] : curve.step[at])), y: bad.map(() => 1),
      marker: { symbol: "x-thin", size: 8, line: { color: "#d1453b", width: 2 } },
      text: bad.map((at) => `${label(name)}: ${curve.bad[at]} not finite`), hoverinfo: "text+x" });
  }
  return traces;
}

/** Events as dashed lines, with triangles on top that show the details. */
export function markTraces(marks) {
  if (!marks.length) return { traces: [], shapes: [] };
  const shapes = marks.map((mark) => ({ type: "line", xref: "x", yref: "paper", x0: mark.x, x1: mark.x, y0: 0, y1: 1,
    layer: "below", line: { color: mark.color, width: 1.2, dash: "dash" } }));
  const text = marks.map((mark) => `<b>${label(mark.text)}</b>${mark.note ? `<br>${label(mark.note)}` : ""}`);
  const trace = { type: "scatter", mode: "markers", yaxis: "y2", x: marks.map((mark) => mark.x), y: marks.map(() => 1),
    marker: { symbol: "triangle-down", size: 10, color: marks.map((mark) => mark.color) }, text,
    hoverinfo: "text+x", showlegend: false, cliponaxis: false };
  return { traces: [trace], shapes };
}

/** The present colours of the page. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  return { ink: color("--ink"), soft: color("--soft"), line: color("--line"), card: color("--card") };
}

/** The layout of a chart. `span` is the number of powers of ten that it shows; `more` are further options of plotly. */
export function layout(options) {
  const { isLog = false, byTime = false, shapes = [], title = null, xTitle = null, legend = true } = options;
  const { span = 2, fromZero = false, zoom = null, more = {} } = options;
  const { ink, soft, line, card } = theme();
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, tickfont: { color: soft } };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: legend ? 30 : 14, b: 38 },
    hovermode: "closest", hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } },
    showlegend: legend, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)",
      traceorder: "normal" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
    xaxis: { ...axis, title: { text: xTitle ?? (byTime ? "seconds since the start" : "step"), font: { color: soft } },
      zeroline: false, automargin: true, exponentformat: "SI", rangemode: "nonnegative",
      // The zoom of this axis is that of the page; see `onZoom`.
      ...(zoom ? { range: [...zoom], autorange: false } : { autorange: true }), uirevision: `${byTime} ${zoom}` },
    yaxis: { ...axis, type: isLog ? "log" : "linear", title: title ? { text: label(title) } : null, automargin: true,
      exponentformat: "power", rangemode: fromZero ? "tozero" : "normal",
      ...(isLog ? { dtick: span > 1.5 ? Math.ceil(span / 7) : "D2" } : {}) },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes,
    // The zoom is kept as long as this value is the same.
    uirevision: `${isLog} ${byTime}`,
    ...more,
  };
}

/** Draws a chart into an element, or updates it. */
export async function drawChart(element, traces, layoutOf) {
  const plotly = await preparePlotly();
  if (!element.isConnected) return;
  if (!element.data) element.replaceChildren();
  await plotly.react(element, traces, layoutOf, CONFIG);
}

/** Calls `zoomed` with the range of the x axis that a person has chosen in a chart, null for all of it. */
export function onZoom(element, zoomed) {
  if (element.isFollowed || !element.on) return;
  element.isFollowed = true;
  element.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) zoomed([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
    else if (change["xaxis.autorange"]) zoomed(null);
  });
}

/** Draws a simple chart until plotly, which is large, is loaded; loading starts after that. */
export function drawQuickly(element, curve, { isLog, byTime }) {
  if (window.Plotly || element.children.length) return;
  const size = { width: element.clientWidth, height: element.clientHeight };
  element.append(quickChart(rawLine(curve, byTime), { isLog: isLog && canBeLog(curve), ...size }));
  requestAnimationFrame(() => setTimeout(preparePlotly));
}

/** Calls `changed` when the page turns light or dark, until the returned function is called. */
export function onColors(changed) {
  const colors = matchMedia("(prefers-color-scheme: dark)");
  colors.addEventListener("change", changed);
  return () => colors.removeEventListener("change", changed);
}

/** Calls `draw` soon after a request, and then pauses for a multiple of the time that drawing took. */
export function throttled(draw) {
  let timer = null;
  let next = 0;
  let over = false;
  const run = async () => {
    await preparePlotly();
    timer = null;
    const start = performance.now();
    await draw();
    const took = performance.now() - start;
    next = performance.now() + Math.min(Math.max(400, 4 * took), LONGEST_PAUSE_MS);
  };
  const request = () => {
    if (timer === null && !over) timer = setTimeout(run, Math.max(0, next - performance.now()));
  };
  const now = () => {
    next = 0;
    clearTimeout(timer);
    timer = null;
    request();
  };
  const forget = onColors(now);
  const stop = () => {
    over = true;
    clearTimeout(timer);
    forget();
  };
  return { request, now, stop };
}

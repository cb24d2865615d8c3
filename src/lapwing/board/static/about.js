// Below the curves of a run: phases, laps, pictures, journal, settings and environment.

import { COLORS, drawChart, layout } from "./charts.js";
import { h, pairs, section, table } from "./dom.js";
import { label } from "./format.js";
import { query } from "./live.js";

const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const UNACCOUNTED = "#9aa5b1";

export function aboutRun(name, details) {
  const { laps, pictures } = details;
  return [
    laps?.error ? section("Laps", h("p", {}, `laps.json cannot be shown: ${laps.error}`)) : null,
    laps?.rows ? section("Laps", table(laps.header, laps.rows, "numbers", true),
      laps.remarks.map((remark) => h("p", { class: "soft" }, remark))) : null,
    section("Pictures", pictures.map((picture) => pictureBox({ run: name, name: picture.name }, picture))),
    section("Journal", journal(details.journal)),
    section("Settings", pairs(details.config)),
    section("Environment", pairs([...details.environment, ["folder", details.folder]])),
    details.damaged ? h("p", { class: "soft" }, `${details.damaged} damaged lines were skipped.`) : null,
    ...Object.values(details.unreadable).map((why) => h("p", { class: "soft" }, why)),
  ].filter(Boolean);
}

/** A picture with its caption; its modification time is in its address, so that a new version is loaded. */
export function pictureBox(where, { changed, caption, name }) {
  const words = caption ?? name;
  const src = `api/picture?${query({ ...where, changed })}`;
  return h("figure", { class: "picture" }, h("img", { src, alt: words, loading: "lazy" }), h("figcaption", {}, words));
}

/** The journal is HTML from the board, in which all text is escaped. */
function journal(html) {
  if (!html) return null;
  const element = h("div", { class: "card journal" });
  element.innerHTML = html;
  return element;
}

export function phaseChart(element, laps) {
  const parts = Object.entries(laps.bars);
  const bars = parts[0]?.[1].length ?? 0;
  const heights = Array.from({ length: bars }, (_, at) => parts.reduce((sum, [, seconds]) => sum + seconds[at], 0));
  const [factor, unit] = UNITS.find(([least]) => Math.max(...heights, 0) >= least) ?? UNITS.at(-1);
  const x = Array.from({ length: bars }, (_, at) => at * laps.stride + 1);
  const traces = parts.map(([part, seconds], index) => ({
    type: "bar", name: label(part), x, y: seconds.map((each) => each / factor), offset: -0.5, width: laps.stride,
    marker: { color: index === parts.length - 1 ? UNACCOUNTED : COLORS[index % COLORS.length], line: { width: 0 } },
    hovertemplate: `%{y:.3g} ${unit}<extra>%{fullData.name}</extra>`,
  }));
  const words = laps.stride > 1 ? `timed step (each bar: the mean of ${laps.stride})` : "timed step";
  const more = { barmode: "stack", bargap: 0 };
  return drawChart(element, traces, layout({ title: `time of a step (${unit})`, xTitle: words, more }));
}

export function pathChart(element, starts) {
  const traces = starts.map(({ links, errors }, index) => {
    const isShown = ([, error]) => typeof error === "number" && error < 1e8;
    const shown = errors.map((error, at) => [links[at], error]).filter(isShown);
    return {
      type: "scatter", mode: "lines+markers", name: `start ${index}`,
      x: shown.map(([count]) => count), y: shown.map(([, error]) => Math.max(error, 1e-8)),
      line: { width: 1, color: COLORS[index % COLORS.length] }, marker: { size: 4 },
    };
  });
  const base = layout({ isLog: true, xTitle: "soft links", title: "squared error" });
  base.xaxis = { ...base.xaxis, type: "log", autorange: "reversed" };
  return drawChart(element, traces, base);
}

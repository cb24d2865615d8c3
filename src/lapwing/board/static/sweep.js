// A sweep: its definition, its results as parallel coordinates and as a heat map, their summary, and the points.

import { throttled } from "./charts.js";
import { h, pairs, section, stateSign, table } from "./dom.js";
import { compareAddress, duration, number, plain, runAddress } from "./format.js";
import { heatMap } from "./heat.js";
import { ask, listen } from "./live.js";
import { parallel } from "./parallel.js";
import { axesOf, gridOf, measuresOf, valueOf } from "./points.js";
import { addressParts, setParameters } from "./view.js";

const MOST_COMPARED = 12;
const MOST_AXES = 8;
const NUMBERS = ["finished", "mean", "spread", "least", "most", "success"];

export function showSweep(main, [name]) {
  const rows = new Map();
  const settingsOf = new Map();
  const { parameters } = addressParts();
  const chosen = Object.fromEntries(["measure", "across", "up"].map((key) => [key, parameters.get(key)]));
  const selects = Object.fromEntries(Object.keys(chosen).map((key) => [key, h("select", { "aria-label": key, onchange: () => choose(key) })]));
  const lines = h("figure", { class: "wide" });
  const chart = h("div", { class: "chart heat" });
  const heat = h("figure", {}, h("figcaption", { class: "tools" }, h("label", {}, "across ", selects.across), h("label", {}, "up ", selects.up)), chart);
  const results = h("section", { hidden: true }, h("h2", {}, "Results"), h("div", { class: "tools" }, h("label", {}, "by ", selects.measure),
    h("span", { class: "soft" }, "A line, a cell of the heat map and a dot open their run.")), lines, heat);
  const about = h("div");
  const points = h("div");
  const definition = h("div");
  const drawing = throttled(draw);
  let details = null;
  let seen = "";
  let drawnFrom = "";
  main.append(h("h1", {}, name), results, about, points, definition);
  document.title = `${name} · Lapwing board`;

  function take(message) {
    for (const row of message.rows) if (row.sweep === name) rows.set(row.run, row);
    for (const [run, values] of Object.entries(message.settings)) settingsOf.set(run, values);
    const shown = [...rows.values()].sort((a, b) => (a.best ?? Infinity) - (b.best ?? Infinity));
    showPoints(shown);
    const states = JSON.stringify(shown.map((row) => [row.run, row.state]));
    if (states !== seen) {
      seen = states;
      loadDetails();
    }
    drawing.request();
  }

  function showPoints(shown) {
    const cells = shown.map((row) => {
      const point = h("a", { href: runAddress(row.run) }, row.run.slice(name.length + 1));
      return [point, stateSign(row.state), number(row.step), number(row.loss), number(row.best)];
    });
    const best = shown.slice(0, MOST_COMPARED).map((row) => row.run);
    const link = h("p", {}, h("a", { href: compareAddress(best) }, `Compare the ${best.length} best`));
    const all = table(["point", "state", "step", "loss", "lowest"], cells, "numbers states");
    points.replaceChildren(section("Points", best.length > 1 ? link : null, all));
  }

  /** The points as data, and what there is to choose. */
  function found() {
    const all = [...rows.values()].map((row) => ({ row, name: row.run.slice(name.length + 1), settings: settingsOf.get(row.run) ?? {} }));
    return { all, axes: axesOf(all, gridOf(details?.asked ?? [])), measures: measuresOf(all) };
  }

  function choose(key) {
    chosen[key] = selects[key].value;
    setParameters({ [key]: chosen[key] });
    drawing.now();
  }

  async function draw() {
    if (!details) return;
    const { all, axes, measures } = found();
    const measure = offer("measure", measures, defaultMeasure(measures));
    const isSomething = axes.length > 0 && all.some((point) => measure && valueOf(point, measure) !== null);
    results.hidden = !isSomething;
    if (!isSomething) return;
    const words = measures.find(({ key }) => key === measure).words;
    const names = axes.map((each) => ({ key: each, words: each }));
    const across = offer("across", names, axes[0]);
    const up = axes.length > 1 ? offer("up", names, axes.find((axis) => axis !== across)) : null;
    selects.up.parentElement.hidden = up === null;
    // The drawing has links, which must not lose the focus without need.
    const from = JSON.stringify([measure, axes, all.map((point) => [point.row.run, valueOf(point, measure)])]);
    if (from !== drawnFrom) {
      drawnFrom = from;
      lines.replaceChildren(parallel(all, axes.slice(0, MOST_AXES), measure, words));
    }
    await heatMap(chart, all, { across, up, measure, words, isLower: isLowerBetter(measure) });
  }

  /** Fills a select; returns what is chosen in it. */
  function offer(key, options, otherwise) {
    const select = selects[key];
    if ([...select.options].map((option) => option.value).join("\n") !== options.map((option) => option.key).join("\n")) {
      select.replaceChildren(...options.map((option) => h("option", { value: option.key }, option.words)));
    }
    select.value = options.some((option) => option.key === chosen[key]) ? chosen[key] : otherwise ?? "";
    return select.value;
  }

  /** By default what the sweep is judged by: the latest value, as in its summary. */
  function defaultMeasure(measures) {
    const wanted = [details?.summary?.metric && `last:${details.summary.metric}`, "last:eval_loss", "min:loss"];
    return wanted.find((key) => measures.some((measure) => measure.key === key)) ?? measures[0]?.key;
  }

  function isLowerBetter(measure) {
    const { metric, better } = details?.summary ?? {};
    return measure.endsWith(`:${metric}`) ? better !== "higher" : !/accuracy|match|success|score/.test(measure);
  }

  async function loadDetails() {
    try {
      details = await ask("sweep", { sweep: name });
      about.replaceChildren(...[section("Summary", summaryOf(details.summary))].filter(Boolean));
      const parts = [section("Definition", pairs(details.asked)), section("Settings of all points", pairs(details.config))];
      definition.replaceChildren(...parts.filter(Boolean));
      drawing.request();
    } catch (error) {
      details ??= { asked: [], config: [], summary: null };
      about.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  const stop = listen({}, take);
  return () => {
    stop();
    drawing.stop();
  };
}

/** The results so far: a row for each combination, over its seeds, and the points that failed with their errors. */
function summaryOf(summary) {
  if (!Array.isArray(summary?.rows)) return null;
  const { experiment, metric, better, goal, points, finished, best, seconds, rows, failed = [] } = summary;
  const success = goal === null ? "" : `, goal ${number(goal)}`;
  const judged = `${experiment}, judged by ${metric} (${better} is better${success})`;
  const done = `${finished} of ${points} points finished in ${duration(seconds ?? 0)}`;
  const sentence = `${judged}: ${done}${best ? `; best is ${best}` : ""}.`;
  const axes = [...new Set(rows.flatMap((row) => Object.keys(row.values ?? {})))];
  const lines = rows.map((row) => [...axes.map((axis) => row.values?.[axis]), ...NUMBERS.map((name) => row[name])].map(plain));
  return [
    h("p", {}, sentence),
    table([...axes, ...NUMBERS], lines, "numbers"),
    failed.map(({ point, error }) => h("p", { class: "trouble" }, h("b", {}, point), ` ${error}`)),
  ].flat();
}

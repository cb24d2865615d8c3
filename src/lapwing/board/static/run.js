// One run, live: numbers, curves with events, commands, laps, pictures, journal, settings.

import { Curves, COLORS, canBeLog, decades, drawChart, drawQuickly, layout, throttled } from "./charts.js";
import { markTraces, metricTraces } from "./charts.js";
import { curveControls, settings } from "./controls.js";
import { h, say, stateSign } from "./dom.js";
import { duration, moment, number, speed, sweepAddress } from "./format.js";
import { ask, listen } from "./live.js";
import { aboutRun, phaseChart, pathChart } from "./about.js";
import { steering } from "./steer.js";

const APART = ["loss", "eval_loss", "effective_learning_rate", "learning_rate", "gradient_norm", "clipped_norm", "skipped"];
const NOTE_COLOR = "#8957e5";

export function showRun(main, [name], useKeys) {
  const curves = new Curves();
  let row = null;
  let details = null;
  let news = "";
  let metric = "";
  let stop = () => {};

  const title = h("h1", {}, name);
  const subtitle = h("p", { class: "soft" });
  const outcome = h("p", { class: "outcome" });
  const tiles = h("div", { class: "tiles" });
  const steer = steering(name);
  const controls = curveControls((what) => (what === "metric" ? choose(settings.metric) : drawing.now()));
  const kinds = ["loss", "other", "learning_rate", "gradient", "phases", "path"];
  const charts = Object.fromEntries(kinds.map((kind) => [kind, h("div", { class: `chart ${kind}` })]));
  const about = h("div");
  const box = (chart, ...words) => h("figure", { hidden: true }, h("figcaption", {}, words), chart);
  const lossBox = box(charts.loss, "loss");
  const otherBox = box(charts.other, "metric ", controls.select);
  const rateBox = box(charts.learning_rate, "effective learning rate");
  const gradientBox = box(charts.gradient, "norm of the gradient");
  const phaseBox = box(charts.phases, "Where the time of a step goes, each phase timed separately");
  const pathBox = box(charts.path, "error over number of links, after each round");
  const waiting = h("p", { class: "soft", hidden: true }, "Nothing is logged yet.");
  main.append(title, subtitle, outcome, tiles, steer.element, h("div", { class: "tools" }, controls.elements), waiting,
    lossBox, h("div", { class: "pair" }, rateBox, gradientBox, otherBox, pathBox), phaseBox, about);
  document.title = `${name} · Lapwing board`;

  const drawing = throttled(draw);

  function take([message]) {
    row = message.row;
    curves.take(message.series);
    const others = message.metrics.filter((each) => !APART.includes(each));
    controls.offer(others, metric);
    otherBox.hidden = !others.length;
    if (!metric && others.length) choose(others.includes(settings.metric) ? settings.metric : others[0]);
    showRow();
    if (curves.metrics.loss) {
      lossBox.hidden = false;
      drawQuickly(charts.loss, curves.metrics.loss, settings);
    }
    const now = JSON.stringify(message.news);
    if (now !== news) {
      news = now;
      loadDetails();
    }
    drawing.request();
  }

  function choose(chosen) {
    if (chosen === metric) return;
    metric = chosen;
    stop();
    stop = follow();
  }

  function follow() {
    return listen({ run: name, metric: [...APART, ...(metric ? [metric] : [])] }, take, gone);
  }

  function gone(sentence) {
    if (sentence === null) loadDetails();
    else main.prepend(h("p", { class: "trouble" }, sentence));
  }

  /** Loads everything except the curves; again, if more has changed meanwhile. */
  let isLoading = false;
  async function loadDetails() {
    if (isLoading) return;
    isLoading = true;
    let seen = null;
    try {
      while (seen !== news) {
        seen = news;
        details = await ask("run", { run: name });
        showDetails();
      }
    } catch (error) {
      outcome.className = "outcome trouble";
      say(outcome, error.message);
    }
    isLoading = false;
  }

  function showRow() {
    if (title.dataset.state !== row.state) {
      title.dataset.state = row.state;
      title.replaceChildren(name, " ", stateSign(row.state));
    }
    const sweep = row.sweep ? [" in the sweep ", h("a", { href: sweepAddress(row.sweep) }, row.sweep)] : [];
    subtitle.replaceChildren(`${row.experiment}, started ${moment(row.created)}`, ...sweep);
    const time = curves.metrics.loss?.time.at(-1);
    const isRead = row.part_read >= 1;
    const shown = [
      [row.steps ? `step of ${number(row.steps)}` : "step", number(row.step), row.steps ? row.step / row.steps : null],
      ["loss", number(row.loss)],
      [row.best_step === null ? "lowest loss" : `lowest loss, at step ${number(row.best_step)}`, number(row.best)],
      ["effective learning rate", number(row.effective_learning_rate)],
      ["steps/s", speed(row.speed)],
      ["time", time === undefined || time === null ? "" : duration(time)],
      ["rollbacks", row.rollbacks ? number(row.rollbacks) : ""],
      ["of the run is read", isRead ? "" : `${Math.round(100 * row.part_read)}%`],
    ].filter(([, value]) => value !== "");
    tiles.replaceChildren(...shown.map(tile));
    if (details) steer.update(row, details);
  }

  function showDetails() {
    outcome.className = "outcome";
    say(outcome, details.outcome ?? "");
    if (row) steer.update(row, details);
    about.replaceChildren(...aboutRun(name, details));
    drawing.request();
  }

  function marks() {
    const loss = curves.metrics.loss;
    if (!details || !loss) return [];
    const happened = details.marks.map((mark) => ({ ...mark, at: loss.step.findIndex((step) => step >= mark.step) }));
    const noted = details.notes.map((event) => {
      const at = loss.time.findIndex((time) => time + row.created >= event.time);
      return { at, step: loss.step.at(at), text: "note", note: event.text, color: NOTE_COLOR };
    });
    return [...noted, ...happened].map((mark) => ({ ...mark, x: settings.byTime ? loss.time.at(mark.at) : mark.step }));
  }

  async function draw() {
    const { metrics } = curves;
    waiting.hidden = Object.keys(metrics).length > 0;
    // Boxes are shown before charts are drawn, since the width of a chart depends on the other boxes.
    const isLogged = (each) => metrics[each]?.step.length > 0;
    lossBox.hidden = !isLogged("loss") && !isLogged("eval_loss");
    const rate = isLogged("effective_learning_rate") ? "effective_learning_rate" : "learning_rate"; // Of older runs.
    rateBox.hidden = !isLogged(rate);
    gradientBox.hidden = !isLogged("gradient_norm");
    phaseBox.hidden = !details?.laps?.bars;
    pathBox.hidden = !details?.path.length;
    const marked = marks();
    await lines(charts.loss, [["loss", COLORS[0]], ["eval_loss", COLORS[2]]], marked);
    const rateStyle = { smoothing: 0, legend: false, leastSpan: 2, shape: "hv", fromZero: true };
    await lines(charts.learning_rate, [[rate, COLORS[2]]], marked, rateStyle);
    await lines(charts.gradient, [["gradient_norm", COLORS[1]], ["clipped_norm", COLORS[0]]], marked);
    await lines(charts.other, [[metric, COLORS[4]]], marked, { leastSpan: Infinity, legend: false });
    if (!phaseBox.hidden) await phaseChart(charts.phases, details.laps);
    if (!pathBox.hidden) await pathChart(charts.path, details.path);
  }

  /** Some metrics in one chart. Its axis is logarithmic if that is set, possible, and they span enough powers of ten. */
  async function lines(element, wanted, marked, style = {}) {
    const { smoothing = settings.smoothing, leastSpan = 0, legend = true, shape, fromZero } = style;
    const logged = wanted.filter(([each]) => curves.metrics[each]?.step.length);
    if (!logged.length) return;
    const shown = logged.map(([each]) => curves.metrics[each]);
    const span = decades(shown);
    const isLog = settings.isLog && span >= leastSpan && shown.every(canBeLog);
    const { byTime } = settings;
    const traces = logged.flatMap(([each, color], index) => {
      const isRare = each.startsWith("eval_");
      const how = { color, name: each, shape, isLog, byTime, smoothing: isRare ? 0 : smoothing, showRaw: index === 0 || isRare };
      return metricTraces(curves.metrics[each], how);
    });
    const { traces: signs, shapes } = markTraces(marked);
    await drawChart(element, [...traces, ...signs], layout({ isLog, byTime, shapes, legend, span, fromZero }));
  }

  useKeys(controls.keys);
  stop = follow();
  return () => {
    stop();
    drawing.stop();
  };
}

function tile([words, value, part = null]) {
  const bar = part === null ? null : h("progress", { max: 1, value: Math.min(1, part), "aria-hidden": "true" });
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, words), bar);
}

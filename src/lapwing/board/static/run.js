// One run, live: numbers, commands, and in three tabs the charts with everything about the run, what it has logged
// besides numbers, and what it uses of its machine.

import { Curves, drawQuickly, onColors, throttled } from "./charts.js";
import { chooser } from "./choose.js";
import { curveControls, settings } from "./controls.js";
import { h, say, stateSign } from "./dom.js";
import { duration, moment, number, speed, sweepAddress } from "./format.js";
import { ask, listen } from "./live.js";
import { aboutRun, phaseChart, pathChart } from "./about.js";
import { loggedPanel } from "./logged.js";
import { Panels } from "./panels.js";
import { steering } from "./steer.js";
import { systemPanel } from "./system.js";
import { tabs } from "./tabs.js";

const NOTE_COLOR = "#8957e5";

export function showRun(main, [name], useKeys) {
  const curves = new Curves();
  let row = null;
  let details = null;
  let news = "";
  let followed = ""; // The metrics whose curves the board sends; empty for all of them.
  let stop = () => {};

  const title = h("h1", {}, name);
  const subtitle = h("p", { class: "soft" });
  const outcome = h("p", { class: "outcome" });
  const tiles = h("div", { class: "tiles" });
  const steer = steering(name);
  const controls = curveControls((what) => {
    if (what === "byTime") panels.zoom = null;
    drawing.now();
  });
  const panels = new Panels(() => drawing.now());
  const choice = chooser("Choose charts", { groups: () => panels.groups(), chosen: () => panels.shown(), choose });
  const charts = { phases: h("div", { class: "chart phases" }), path: h("div", { class: "chart path" }) };
  const about = h("div");
  const box = (chart, ...words) => h("figure", { hidden: true }, h("figcaption", {}, words), chart);
  const phaseBox = box(charts.phases, "Where the time of a step goes, each phase timed separately");
  const pathBox = box(charts.path, "error over number of links, after each round");
  const waiting = h("p", { class: "soft", hidden: true }, "Nothing is logged yet.");
  const tools = h("div", { class: "tools" }, controls.elements, h("span", { class: "space" }), choice.button);
  const logged = loggedPanel(name);
  const system = systemPanel(name, () => row?.state === "running");
  const overview = h("div", {}, tools, waiting, panels.element, pathBox, phaseBox, about);
  const views = tabs([
    { key: "charts", title: "Charts", panel: overview },
    { key: "logged", title: "Logged", panel: logged.element },
    { key: "system", title: "System", panel: system.element },
  ], open);
  main.append(title, subtitle, outcome, tiles, steer.element, views.element, overview, logged.element, system.element);
  document.title = `${name} · Lapwing board`;

  const drawing = throttled(draw);

  function take([message]) {
    row = message.row;
    curves.take(message.series);
    const wanted = panels.learn(message.metrics);
    // More metrics than are sent without asking, or charts that were chosen, are asked for by name.
    if (wanted.some((each) => !(each in curves.metrics))) follow(wanted);
    showRow();
    if (curves.metrics.loss && panels.isEmpty && panels.shown().includes("loss")) {
      panels.arrange(["loss"]);
      drawQuickly(panels.chart("loss"), curves.metrics.loss, settings);
    }
    const now = JSON.stringify(message.news);
    if (now !== news) {
      news = now;
      loadDetails();
      logged.update();
    }
    drawing.request();
  }

  function choose(names) {
    panels.choose(names);
    const wanted = panels.shown().flatMap((each) => panels.charts.get(each));
    if (wanted.some((each) => !(each in curves.metrics))) follow(wanted);
    drawing.now();
  }

  function follow(metrics) {
    if (JSON.stringify(metrics) === followed) return;
    followed = JSON.stringify(metrics);
    stop();
    stop = listen({ run: name, metric: metrics }, take, gone);
  }

  function open(key) {
    logged.show(key === "logged");
    system.show(key === "system");
    drawing.now();
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
        const found = await ask("run", { run: name });
        const isNew = JSON.stringify(found) !== JSON.stringify(details);
        details = found;
        if (isNew) showDetails();
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
    say(views.buttons.get("logged"), row.logged ? `Logged (${number(row.logged)})` : "Logged");
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
    if (overview.hidden) return; // A chart that is hidden has no size.
    waiting.hidden = Object.keys(curves.metrics).length > 0;
    phaseBox.hidden = !details?.laps?.bars;
    pathBox.hidden = !details?.path.length;
    await panels.draw(curves, marks());
    if (!phaseBox.hidden) await phaseChart(charts.phases, details.laps);
    if (!pathBox.hidden) await pathChart(charts.path, details.path);
  }

  useKeys(controls.keys);
  const forget = onColors(() => (logged.redraw(), system.redraw()));
  views.begin();
  follow([]);
  return () => {
    stop();
    drawing.stop();
    forget();
    system.show(false);
    choice.close();
  };
}

function tile([words, value, part = null]) {
  const bar = part === null ? null : h("progress", { max: 1, value: Math.min(1, part), "aria-hidden": "true" });
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, words), bar);
}

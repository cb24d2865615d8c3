// Several runs in one chart, what differs between them, and the first step at which they differ.

import { Curves, COLORS, canBeLog, decades, drawChart, layout, metricTraces, throttled } from "./charts.js";
import { curveControls, settings } from "./controls.js";
import { h, say, section, stateSign, table } from "./dom.js";
import { number, plain, runAddress } from "./format.js";
import { ask, listen } from "./live.js";

export function showComparison(main, names, useKeys) {
  const runs = new Map(names.map((name) => [name, { curves: new Curves(), row: null }]));
  let metric = "loss";
  let offered = new Set(["loss"]);
  let stop = () => {};

  const controls = curveControls((what) => (what === "metric" ? choose(controls.select.value) : drawing.now()));
  const chart = h("div", { class: "chart loss" });
  const legend = h("div", { class: "card wide" });
  const verdicts = h("div");
  const differing = h("div");
  const waiting = h("p", { class: "soft", hidden: true });
  const tools = h("div", { class: "tools" }, h("label", {}, "metric ", controls.select), controls.elements);
  main.append(h("h1", {}, `${names.length} runs compared`), legend, tools, waiting, h("figure", {}, chart), verdicts, differing);
  document.title = "Comparison · Lapwing board";
  const drawing = throttled(draw);

  function take(messages) {
    for (const message of messages) {
      const run = runs.get(message.row.run);
      run.row = message.row;
      run.curves.take(message.series);
      for (const each of message.metrics) offered.add(each);
    }
    controls.offer([...offered], metric);
    showRows();
    drawing.request();
  }

  function choose(chosen) {
    if (chosen === metric) return;
    metric = chosen;
    stop();
    stop = follow();
    drawing.now();
  }

  function follow() {
    return listen({ run: names, metric: [metric, evaluated()] }, take, (sentence) => sentence && main.prepend(h("p", { class: "trouble" }, sentence)));
  }

  function showRows() {
    const rows = [...runs].filter(([, { row }]) => row).map(([name, { row }]) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = colorOf(name);
      const link = h("span", {}, swatch, h("a", { href: runAddress(name) }, name));
      return [link, stateSign(row.state), ...[row.step, row.loss, row.best, row.effective_learning_rate].map((value) => number(value))];
    });
    legend.replaceChildren(...table(["run", "state", "step", "loss", "lowest", "effective_learning_rate"], rows, "numbers states").children);
  }

  /** The evaluation of the metric, which is shown beside it, dashed. */
  const evaluated = () => `eval_${metric}`;
  const colorOf = (name) => COLORS[names.indexOf(name) % COLORS.length];

  async function draw() {
    const there = [...runs].filter(([, { curves }]) => curves.metrics[metric]?.step.length);
    waiting.hidden = there.length > 0;
    say(waiting, `None of them has logged ${metric} yet.`);
    const shown = there.flatMap(([, { curves }]) => [curves.metrics[metric], curves.metrics[evaluated()]].filter(Boolean));
    const isLog = settings.isLog && shown.every(canBeLog);
    const { byTime, smoothing } = settings;
    const traces = there.flatMap(([name, { curves }]) => {
      const how = { color: colorOf(name), name, isLog, byTime, smoothing };
      const beside = curves.metrics[evaluated()];
      const dashed = beside ? metricTraces(beside, { ...how, name: `${name} ${evaluated()}`, smoothing: 0 }) : [];
      return [...metricTraces(curves.metrics[metric], how), ...dashed.map((trace) => ({ ...trace, line: { ...trace.line, dash: "dot" } }))];
    });
    await drawChart(chart, traces, layout({ isLog, byTime, title: metric, legend: false, span: decades(shown) }));
  }

  async function showDifferences() {
    const { config, environment } = await ask("compare", { run: names });
    const rows = [...config, ...environment].map(([path, values]) => [path, ...values.map(plain)]);
    const nothing = h("p", {}, "Nothing differs in config, versions and device.");
    const content = rows.length ? table(["what differs", ...names], rows) : nothing;
    differing.replaceChildren(section("What differs", content));
  }

  /** Compares each run with the first one, in turn, since a comparison needs all numbers of both. */
  async function showVerdicts() {
    const [first, ...others] = names;
    for (const other of others) {
      const line = h("p", {}, `Comparing ${other} with ${first} …`);
      if (!verdicts.children.length) verdicts.append(h("h2", {}, "First difference"));
      verdicts.append(line);
      const found = await ask("difference", { run: [first, other] });
      line.replaceWith(verdict(first, other, found));
    }
  }

  function verdict(first, other, found) {
    if (found.error) return h("p", {}, found.error);
    const over = `the ${number(found.steps)} steps that both have (${number(found.first_step)} to ${number(found.last_step)})`;
    const pairOf = h("span", {}, h("b", {}, other), " and ", h("b", {}, first));
    if (found.differs_at === null) return h("p", { class: "verdict" }, pairOf, ` never differ: every metric is equal at ${over}.`);
    const rows = found.metrics.map((each) => [each.name, number(each.step), number(each.a, 9), number(each.b, 9),
      number(each.difference, 3), number(each.relative, 3)]);
    const [at] = found.metrics;
    const step = h("b", {}, `step ${number(at.step)}`);
    const sentence = h("p", { class: "verdict" }, pairOf, " first differ at ", step, ` in ${at.name}, of ${over}.`);
    return h("div", {}, sentence, table(["metric", "from step", first, other, "difference", "relative"], rows, "numbers"));
  }

  const fail = (error) => main.prepend(h("p", { class: "trouble" }, error.message));
  useKeys(controls.keys);
  stop = follow();
  showDifferences().then(showVerdicts).catch(fail);
  return () => {
    stop();
    drawing.stop();
  };
}

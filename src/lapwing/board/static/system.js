// What a run uses of its machine: CPU, memory and GPUs, over time.

import { COLORS, drawChart, layout } from "./charts.js";
import { h } from "./dom.js";
import { ask } from "./live.js";

const AGAIN_MS = 10000;
const GB = 1e9;
const CHARTS = [
  { title: "CPU of the run (100% is one core)", columns: /^cpu_percent$/, unit: "%" },
  { title: "memory of the run (GB)", columns: /^memory_bytes$/, unit: "GB" },
  { title: "GPU use", columns: /^gpu\d+_percent$/, unit: "%" },
  { title: "GPU memory (GB)", columns: /^gpu\d+_memory_bytes$/, unit: "GB" },
  { title: "CPU of the machine (all cores, all processes)", columns: /^machine_cpu_percent$/, unit: "%" },
  { title: "memory of the machine (GB, all processes)", columns: /^machine_memory_bytes$/, unit: "GB" },
];

/** A panel, and a function `show` with whether it is visible; it is read again while it is, and the run is running. */
export function systemPanel(run, isRunning) {
  const boxes = CHARTS.map(({ title }) => {
    const chart = h("div", { class: "chart system" });
    return { chart, figure: h("figure", { hidden: true }, h("figcaption", {}, title), chart) };
  });
  const nothing = h("p", { class: "soft", hidden: true }, "There is no sample: the first is taken after a second.");
  const element = h("div", {}, nothing, h("div", { class: "panels" }, boxes.map(({ figure }) => figure)));
  let timer = null;
  let columns = null;

  async function load() {
    try {
      columns = await ask("system", { run });
      await draw();
    } catch (error) {
      nothing.hidden = false;
      nothing.textContent = error.message;
    }
    if (timer !== null && isRunning()) timer = setTimeout(load, AGAIN_MS);
  }

  async function draw() {
    if (!columns) return;
    nothing.hidden = Boolean(columns.seconds);
    const found = CHARTS.map(({ columns: fit }) => Object.keys(columns).filter((name) => fit.test(name)));
    boxes.forEach(({ figure }, index) => (figure.hidden = !found[index].length));
    for (const [index, names] of found.entries()) {
      if (names.length) await drawChart(boxes[index].chart, traces(names, CHARTS[index].unit), base(names, CHARTS[index].unit));
    }
  }

  function traces(names, unit) {
    const few = columns.seconds.length < 60;
    return names.map((name, index) => ({
      type: "scatter", mode: few ? "lines+markers" : "lines", name: name.replace(/_.*/, ""), x: columns.seconds,
      y: columns[name].map((value) => (value === null || unit === "%" ? value : value / GB)),
      line: { color: COLORS[index % COLORS.length], width: 1.75 }, marker: { size: 4 },
      hovertemplate: `%{y:.3g} ${unit}<extra>${name.replace(/_.*/, "")}</extra>`,
    }));
  }

  const base = (names, unit) => {
    const made = layout({ byTime: true, legend: names.length > 1, fromZero: true });
    return { ...made, yaxis: { ...made.yaxis, ticksuffix: unit === "%" ? "%" : "" } };
  };

  const show = (visible) => {
    clearTimeout(timer);
    timer = visible ? 0 : null;
    if (visible) load();
  };
  return { element, show, redraw: draw };
}

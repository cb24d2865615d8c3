// The charts of a run: which metrics belong together, which charts are shown, each with its axis.

import { COLORS, canBeLog, decades, drawChart, layout, markTraces, metricTraces, onZoom } from "./charts.js";
import { settings } from "./controls.js";
import { h } from "./dom.js";
import { addressParts, joined, recall, remember, setParameters, split } from "./view.js";

const EVALUATED = /^(eval|val|valid|validation|test)_/;
const TOGETHER = { clipped_norm: "gradient_norm", effective_learning_rate: "learning_rate" };
const FIRST = ["loss", "gradient_norm", "learning_rate"];
const RARE = ["skipped"];
const MOST_BY_DEFAULT = 12;
// Charts whose names are known have a class of that name.
const CLASSES = { loss: "loss", gradient_norm: "gradient", learning_rate: "learning_rate" };
const STYLES = {
  loss: { colors: [COLORS[0], COLORS[2], COLORS[4]] },
  gradient_norm: { colors: [COLORS[1], COLORS[0]] },
  learning_rate: { colors: [COLORS[2]], smoothing: 0, leastSpan: 2, shape: "hv", fromZero: true },
};
const OTHERS = { colors: [COLORS[4], COLORS[2], COLORS[5]], leastSpan: Infinity };

/** Metrics by chart: an evaluation is beside the metric that it evaluates, and some belong together. */
export function chartsOf(metrics) {
  const chart = (name) => TOGETHER[name] ?? name.replace(EVALUATED, "");
  const groups = Map.groupBy(metrics, chart);
  for (const members of groups.values()) members.sort((a, b) => EVALUATED.test(a) - EVALUATED.test(b));
  const names = [...groups.keys()];
  const sorted = [...FIRST.filter((name) => groups.has(name)), ...names.filter((name) => !FIRST.includes(name))];
  return new Map(sorted.map((name) => [name, groups.get(name)]));
}

export class Panels {
  /** `redraw` is called when an axis or the zoom was changed. */
  constructor(redraw) {
    this.element = h("div", { class: "panels" });
    this.chosen = split(addressParts().parameters.get("charts")) ?? recall("charts") ?? null;
    if (!Array.isArray(this.chosen)) this.chosen = null;
    this.scales = recall("scales") ?? {};
    this.zoom = null;
    this.redraw = redraw;
    this.boxes = new Map();
    this.charts = new Map();
    this.order = "";
  }

  /** Learns which metrics there are; returns those of the shown charts. */
  learn(metrics) {
    this.charts = chartsOf(metrics);
    return this.shown().flatMap((name) => this.charts.get(name));
  }

  shown() {
    const names = [...this.charts.keys()];
    if (this.chosen) return names.filter((name) => this.chosen.includes(name));
    return names.filter((name) => !RARE.includes(name)).slice(0, MOST_BY_DEFAULT);
  }

  choose(names) {
    this.chosen = names;
    remember("charts", names);
    setParameters({ charts: names && joined(names) });
  }

  groups() {
    const words = (name, members) => (members.includes(name) && members.length === 1 ? name : `${name}: ${members.join(", ")}`);
    const rows = [...this.charts].map(([name, members]) => ({ name: null, boxes: [{ key: name, words: words(name, members) }] }));
    return [{ title: "Metrics of this run", rows }];
  }

  /** The element of a chart, for the simple one that is drawn first. */
  chart(name) {
    return this.box(name).chart;
  }

  box(name) {
    if (!this.boxes.has(name)) {
      const chart = h("div", { class: `chart ${CLASSES[name] ?? "other"}`, "data-chart": name });
      const scale = h("button", { type: "button", class: "plain scale", onclick: () => this.switchScale(name) });
      const figure = h("figure", { class: name === "loss" ? "first" : "" }, h("figcaption", {}, h("span", {}, name.replaceAll("_", " ")), scale), chart);
      this.boxes.set(name, { figure, chart, scale, isLog: false });
    }
    return this.boxes.get(name);
  }

  switchScale(name) {
    this.scales[name] = this.boxes.get(name).isLog ? "linear" : "log";
    remember("scales", this.scales);
    this.redraw();
  }

  get isEmpty() {
    return !this.element.children.length;
  }

  /** Puts the boxes in their order. They are placed before charts are drawn, since a width depends on the others. */
  arrange(names) {
    const order = JSON.stringify(names);
    if (order === this.order) return;
    this.order = order;
    this.element.replaceChildren(...names.map((name) => this.box(name).figure));
  }

  async draw(curves, marks) {
    const isLogged = (each) => curves.metrics[each]?.step.length > 0;
    const names = this.shown().filter((name) => this.charts.get(name).some(isLogged));
    this.arrange(names);
    for (const name of names) await this.drawOne(name, this.charts.get(name).filter(isLogged), curves, marks);
  }

  /** The axis is logarithmic if that is set, possible, and the metrics span enough powers of ten, or if chosen here. */
  async drawOne(name, members, curves, marks) {
    const box = this.box(name);
    const { colors, smoothing = settings.smoothing, leastSpan = 0, shape, fromZero } = STYLES[name] ?? OTHERS;
    const shown = members.map((each) => curves.metrics[each]);
    const [span, possible] = [decades(shown), shown.every(canBeLog)];
    const asked = { log: true, linear: false }[this.scales[name]] ?? (settings.isLog && span >= leastSpan);
    const isLog = asked && possible;
    const { byTime } = settings;
    const traces = members.flatMap((each, index) => {
      const isRare = EVALUATED.test(each);
      const how = { color: colors[index % colors.length], name: each, shape, isLog, byTime, smoothing: isRare ? 0 : smoothing, showRaw: index === 0 || isRare };
      return metricTraces(curves.metrics[each], how);
    });
    const { traces: signs, shapes } = markTraces(marks);
    const legend = members.length > 1 || members[0] !== name;
    await drawChart(box.chart, [...traces, ...signs], layout({ isLog, byTime, shapes, legend, span, fromZero, zoom: this.zoom }));
    Object.assign(box, { isLog });
    box.scale.hidden = !possible;
    box.scale.textContent = isLog ? "log" : "linear";
    box.scale.title = `switch to a ${isLog ? "linear" : "log"} axis`;
    onZoom(box.chart, (zoom) => this.zoomTo(zoom));
  }

  /** All charts of the page show the same steps. */
  zoomTo(zoom) {
    if (JSON.stringify(zoom) === JSON.stringify(this.zoom)) return;
    this.zoom = zoom;
    this.redraw();
  }
}

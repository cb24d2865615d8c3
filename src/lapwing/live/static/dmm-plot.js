// The answers so far as a small plot, with a mark at each edit.

import { drawn, h } from "./dom.js";
import { number } from "./format.js";

const COLOURS = ["var(--accent)", "var(--amber)", "var(--good)", "var(--bad)", "var(--soft)"];
const HEIGHT = 190;
const MARGIN = { left: 48, right: 10, top: 10, bottom: 22 };

/** A plot in an element, with the last answers in another one. */
export function answersPlot(place, now) {
  let cycles = [];
  let fields = {};
  let most = 1000;

  return {
    keep(count) {
      most = count;
    },
    add({ first, cycles: more, fields: values }) {
      if (first) [cycles, fields] = [[], {}];
      cycles = [...cycles, ...more].slice(-most);
      for (const [name, numbers] of Object.entries(values)) {
        fields[name] = [...(fields[name] ?? []), ...numbers.map(Number)].slice(-most);
      }
    },
    draw(marks) {
      const names = Object.keys(fields);
      now.replaceChildren(...names.map((name, index) =>
        h("span", { class: "key", style: `--of: ${COLOURS[index % COLOURS.length]}` }, `${name} ${number(fields[name].at(-1) ?? 0, 4)}`)));
      place.replaceChildren(names.length ? plot(names, marks) : h("p", { class: "soft" }, "This machine has no output neuron."));
    },
  };

  function plot(names, marks) {
    const width = Math.max(place.clientWidth, 200);
    const svg = drawn("svg", { width, height: HEIGHT, role: "img", "aria-label": "Answers by cycle" });
    const all = names.flatMap((name) => fields[name].filter(Number.isFinite));
    const [low, high] = [Math.min(0, ...all), Math.max(1, ...all)];
    const [from, to] = [cycles[0] ?? 0, Math.max(cycles.at(-1) ?? 0, (cycles[0] ?? 0) + 20)];
    const x = (cycle) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * (cycle - from)) / (to - from);
    const y = (value) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * (value - low)) / (high - low);
    for (const value of [low, (low + high) / 2, high]) {
      svg.append(drawn("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      svg.append(drawn("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value, 3)));
    }
    for (const [cycle, anchor] of [[from, "start"], [to, "end"]]) {
      svg.append(drawn("text", { x: x(cycle), y: HEIGHT - 6, "text-anchor": anchor }, number(cycle)));
    }
    for (const cycle of marks.filter((each) => each >= from && each <= to)) {
      svg.append(drawn("line", { class: "mark", x1: x(cycle), x2: x(cycle), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    }
    names.forEach((name, index) => {
      const points = fields[name].flatMap((value, at) =>
        Number.isFinite(value) ? [`${x(cycles[at]).toFixed(1)},${y(value).toFixed(1)}`] : []);
      svg.append(drawn("polyline", { points: points.join(" "), stroke: COLOURS[index % COLOURS.length], style: `stroke: ${COLOURS[index % COLOURS.length]}` }));
    });
    return svg;
  }
}

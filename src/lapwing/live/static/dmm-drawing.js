// The drawing of a machine: drawn once for a set of links, then only its numbers change.

import { drawn, say } from "./dom.js";
import { number } from "./format.js";

const LONGEST = 20; // Characters of a value that fit into a box.
const SMALLEST = 0.62; // Of the drawing's size: on a phone it is scrolled rather than made smaller.

/** The drawing in an element; `choose` is called with the number of a link that is clicked. */
export function machineDrawing(place, choose) {
  let boxes = new Map(); // The text of each neuron's value.
  let wires = [];
  let chosen = null;
  let size = { width: 0, height: 0 };

  function fit() {
    const svg = place.firstElementChild;
    if (!svg) return;
    const scale = Math.min(1, Math.max(SMALLEST, place.clientWidth / size.width));
    svg.setAttribute("width", size.width * scale);
    svg.setAttribute("height", size.height * scale);
  }
  new ResizeObserver(fit).observe(place);

  return {
    draw(drawing) {
      size = drawing;
      const svg = drawn("svg", { viewBox: `0 0 ${drawing.width} ${drawing.height}`, role: "img", "aria-label": "The machine" });
      wires = drawing.links.map((link, index) => wire(link, index, rankOf(drawing.links, index), choose));
      boxes = new Map();
      svg.append(...wires.map((each) => each.element), ...(drawing.labels ? wires.map((each) => each.label) : []));
      for (const box of drawing.boxes) {
        const value = drawn("text", { class: "value", x: box.at[0] + box.width / 2, y: box.at[1] + box.height - 9, "text-anchor": "middle" });
        boxes.set(box.name, { value, title: drawn("title", {}) });
        svg.append(boxOf(box, boxes.get(box.name)));
      }
      place.replaceChildren(svg);
      fit();
    },
    show({ values, flows }) {
      for (const [name, { value, title }] of boxes) {
        const text = values[name] ?? "";
        say(title, `${name}: ${text}`);
        say(value, text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);
      }
      flows.forEach(([weight, flow], index) => wires[index].show(weight, Number(flow)));
    },
    choose(index) {
      wires[chosen]?.element.classList.remove("chosen");
      chosen = index;
      wires[chosen]?.element.classList.add("chosen");
    },
  };
}

function boxOf(box, { value, title }) {
  const [x, y] = box.at;
  const group = drawn("g", { class: "box" }, title, drawn("rect", { x, y, width: box.width, height: box.height, rx: 8 }));
  const text = (words, kind, at, anchor) => drawn("text", { class: kind, x: at[0], y: at[1], "text-anchor": anchor }, words);
  const known = box.name.startsWith(box.kind);
  group.append(text(box.name, "name", [x + box.width / 2, y + (known ? 20 : 16)], "middle"));
  if (!known) group.append(text(box.kind, "kind", [x + box.width / 2, y + 30], "middle"));
  group.append(...box.inputs.map(([name, at]) => text(name, "field", [x + 8, at + 4], "start")));
  group.append(...box.outputs.map(([name, at]) => text(name, "field", [x + box.width - 8, at + 4], "end")));
  const line = y + box.height - 26;
  group.append(drawn("line", { x1: x, x2: x + box.width, y1: line, y2: line }), value);
  return group;
}

/** How many links before this one end at the same field: their weights are written one beside the other. */
function rankOf(links, index) {
  return links.slice(0, index).filter((link) => link.to === links[index].to).length;
}

function wire(link, index, rank, choose) {
  const [start, ...rest] = link.curve;
  const pieces = [];
  for (let at = 0; at < rest.length; at += 3) pieces.push(`C ${rest.slice(at, at + 3).map((point) => point.join(",")).join(" ")}`);
  const d = `M ${start.join(",")} ${pieces.join(" ")}`;
  const shown = drawn("path", { d, class: "shown" });
  const [x, y] = onLastBend(link.curve, Math.max(0.8 - 0.2 * rank, 0.1));
  const label = drawn("text", { class: "weight", x, y: y - 5, "text-anchor": "middle" });
  const title = drawn("title", {});
  const element = drawn("g", { class: "wire" }, title, drawn("path", { d, class: "near" }), shown);
  element.addEventListener("click", () => choose(index));
  return {
    element,
    label,
    show(weight, flow) {
      const size = Math.abs(flow);
      const width = Number.isFinite(size) ? Math.min(1 + 1.5 * Math.log2(1 + size), 8) : 8;
      shown.setAttribute("stroke-width", width.toFixed(2));
      element.classList.toggle("minus", flow < 0);
      element.classList.toggle("still", flow === 0);
      element.classList.toggle("dead", link.dead);
      say(label, number(weight, 3));
      say(title, `${link.name}: ${number(weight, 6)}, ${number(flow, 6)} flows`);
    },
  };
}

/** The point at t, from 0 to 1, of the last cubic piece of a curve. */
function onLastBend(curve, t) {
  const weights = [(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t ** 2, t ** 3];
  return [0, 1].map((axis) => weights.reduce((sum, weight, at) => sum + weight * curve.at(at - 4)[axis], 0));
}

// Elements from plain data. Text is only ever text: nothing that comes from a run is read as HTML here.

import { plain } from "./format.js";

/** An element with properties and children; a child that is a string or a number becomes text, null is left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table; `kind` is its class, `last` makes its last row the sum of the others. */
export function table(header, rows, kind = "", last = false) {
  const cells = (row, tag) => row.map((value) => h(tag, {}, value instanceof Node ? value : String(value ?? "")));
  const body = rows.map((row, place) => {
    const isSum = last && place === rows.length - 1;
    return h("tr", { class: isSum ? "total" : "" }, cells(row, "td"));
  });
  const head = header ? h("thead", {}, h("tr", {}, cells(header, "th"))) : null;
  return h("div", { class: "card wide" }, h("table", { class: kind }, head, h("tbody", {}, body)));
}

/** Names and values beside each other, in as many columns as there is room for; nothing if there are none. */
export function pairs(rows) {
  const list = rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(plain(value) ?? ""))));
  return list.length ? h("dl", { class: "card pairs" }, list) : null;
}

/** A heading with what stands below it; nothing if nothing does. */
export function section(title, ...content) {
  const there = content.flat().filter(Boolean);
  return there.length ? h("section", {}, h("h2", {}, title), there) : null;
}

/** Puts text into an element if it is other than what is there: what does not change is not drawn again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The state of a run as a small sign with a word, for those who see no colours too. */
export function stateSign(state) {
  const known = ["running", "paused", "finished", "stopped", "failed", "lost"];
  return h("span", { class: `state ${known.includes(state) ? state : "bad"}` }, state);
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of an SVG. */
export function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A curve of the size of a word, on a log scale where all of it is positive. */
export function sketch(values) {
  const svg = drawn("svg", { viewBox: "0 0 96 24", class: "sketch", preserveAspectRatio: "none", "aria-hidden": "true" });
  const shown = values.filter((value) => value !== null);
  if (shown.length < 2) return svg;
  const scale = shown.every((value) => value > 0) ? Math.log : (value) => value;
  const heights = shown.map(scale);
  const low = Math.min(...heights);
  const span = Math.max(...heights) - low || 1;
  const points = values.flatMap((value, place) => {
    if (value === null) return [];
    const x = 2 + (92 * place) / (values.length - 1);
    return [`${x.toFixed(1)},${(22 - (20 * (scale(value) - low)) / span).toFixed(1)}`];
  });
  svg.append(drawn("polyline", { points: points.join(" ") }));
  return svg;
}

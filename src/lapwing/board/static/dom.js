// Elements from plain data. Text stays text: nothing that comes from a run is parsed as HTML here.

import { plain } from "./format.js";

/** An element with properties and children; strings and numbers become text, null is skipped. */
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

/** A table; `kind` is its class, `last` marks its last row as the sum of the others. */
export function table(header, rows, kind = "", last = false) {
  const cells = (row, tag) => row.map((value) => h(tag, {}, value instanceof Node ? value : String(value ?? "")));
  const body = rows.map((row, index) => {
    const isSum = last && index === rows.length - 1;
    return h("tr", { class: isSum ? "total" : "" }, cells(row, "td"));
  });
  const head = header ? h("thead", {}, h("tr", {}, cells(header, "th"))) : null;
  return h("div", { class: "card wide" }, h("table", { class: kind }, head, h("tbody", {}, body)));
}

/** Names and values, in as many columns as fit; null if there are none. */
export function pairs(rows) {
  const list = rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(plain(value) ?? ""))));
  return list.length ? h("dl", { class: "card pairs" }, list) : null;
}

/** A heading with content; null if there is no content. */
export function section(title, ...content) {
  const shown = content.flat().filter(Boolean);
  return shown.length ? h("section", {}, h("h2", {}, title), shown) : null;
}

/** Sets the text of an element if it is different, so that nothing is rendered again without need. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The state of a run as a coloured dot with a word. */
export function stateSign(state) {
  const known = ["running", "paused", "finished", "stopped", "preempted", "failed", "lost"];
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

/** A sparkline, on a log scale if all values are positive. */
export function sketch(values) {
  const svg = drawn("svg", { viewBox: "0 0 96 24", class: "sketch", preserveAspectRatio: "none", "aria-hidden": "true" });
  const shown = values.filter((value) => value !== null);
  if (shown.length < 2) return svg;
  const scale = shown.every((value) => value > 0) ? Math.log : (value) => value;
  const heights = shown.map(scale);
  const low = Math.min(...heights);
  const span = Math.max(...heights) - low || 1;
  const points = values.flatMap((value, index) => {
    if (value === null) return [];
    const x = 2 + (92 * index) / (values.length - 1);
    return [`${x.toFixed(1)},${(22 - (20 * (scale(value) - low)) / span).toFixed(1)}`];
  });
  svg.append(drawn("polyline", { points: points.join(" ") }));
  return svg;
}

// All runs: a live table that can be filtered and sorted, and from which runs are selected.

import { preparePlotly } from "./charts.js";
import { chooser } from "./choose.js";
import { Columns } from "./columns.js";
import { h, say, sketch, stateSign } from "./dom.js";
import { compareAddress, number, runAddress, sweepAddress } from "./format.js";
import { listen } from "./live.js";
import { addressParts, recall, remember, setParameters } from "./view.js";

const MOST_SELECTED = 12;
const FEW_POINTS = 6;

const NEWEST = { key: "created", down: true };

// Kept while other views are open.
const selected = new Set();
const opened = new Set();
let wanted = "";

export function showTable(main, _, useKeys) {
  const rows = new Map();
  const settings = new Map();
  const columns = new Columns();
  const settingsOf = (name) => settings.get(name);
  let shownColumns = columns.shown(settingsOf);
  let order = storedOrder();
  wanted = addressParts().parameters.get("filter") ?? wanted;
  setParameters({ filter: wanted });
  const lines = new Map();
  const groupLines = new Map();
  let about = { folder: "", trouble: null, sweeps: [] };

  const filter = h("input", {
    type: "search", placeholder: "filter: name, tag, experiment, state", "aria-label": "Filter the runs", value: wanted,
    oninput: () => {
      wanted = filter.value;
      setParameters({ filter: wanted });
      draw();
    },
  });
  const count = h("span", { class: "soft", role: "status" });
  const compare = h("button", { type: "button", onclick: () => openComparison() }, "Compare");
  const none = h("button", { type: "button", class: "plain", onclick: () => (selected.clear(), draw()) }, "Select none");
  const boxes = h("th", { class: "select-cell" }, h("span", { class: "hidden" }, "selected"));
  const head = h("tr", {}, boxes, shownColumns.map(headCell));
  const choice = chooser("Choose columns", { groups: () => columns.groups(), chosen: () => columns.keys(), choose: chooseColumns });
  const body = h("tbody");
  const whole = h("table", { class: "runs" }, h("thead", {}, head), body);
  const frame = h("div", { class: "card wide", hidden: true }, whole);
  const empty = h("div", { class: "empty", hidden: true });
  main.append(h("div", { class: "tools" }, filter, count, h("span", { class: "space" }), none, choice.button, compare), frame, empty);
  document.title = "Lapwing board";

  function chooseColumns(keys) {
    columns.choose(keys);
    buildColumns();
    draw();
  }

  function buildColumns() {
    shownColumns = columns.shown(settingsOf);
    lines.clear();
    groupLines.clear();
    head.replaceChildren(boxes, ...shownColumns.map(headCell));
  }

  function headCell(column) {
    if (!column.title) return h("th", { class: column.kind });
    const button = h("button", { type: "button", class: "plain", onclick: () => sortBy(column) }, column.title);
    return h("th", { class: column.kind ?? "", scope: "col", "data-key": column.key }, button);
  }

  function sortBy({ key, isText = false, isLowFirst = false }) {
    order = { key, down: order.key === key ? !order.down : !isText && !isLowFirst };
    remember("order", order);
    setParameters({ sort: `${order.down ? "-" : ""}${order.key}` });
    draw();
  }

  function openComparison() {
    if (selected.size > 1) location.hash = compareAddress([...selected].slice(0, MOST_SELECTED));
  }

  function take(message) {
    if (message.first) rows.clear(), settings.clear();
    for (const [name, values] of Object.entries(message.settings)) settings.set(name, values);
    if (columns.learn(message.rows, message.settings)) buildColumns();
    for (const row of message.rows) rows.set(row.run, row);
    for (const name of message.gone) rows.delete(name), selected.delete(name);
    about = message;
    say(document.getElementById("place"), message.folder);
    draw();
    // Charts are likely to be needed next.
    if (message.first) setTimeout(preparePlotly, 1000);
  }

  function draw() {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => wordsOf(row).includes(word));
    const shown = [...rows.values()].filter(fits);
    const running = shown.filter((row) => row.state === "running").length;
    say(count, `${shown.length} run${shown.length === 1 ? "" : "s"}${running ? `, ${running} running` : ""}`);
    compare.disabled = selected.size < 2;
    say(compare, selected.size ? `Compare ${selected.size}` : "Compare");
    none.hidden = !selected.size;
    for (const cell of head.querySelectorAll("[data-key]")) {
      if (cell.dataset.key === order.key) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    place(arranged(shown, words.length > 0));
    frame.hidden = !body.children.length;
    drawEmpty(body.children.length);
  }

  /** The runs of a folder, such as a sweep, are below a row of its own, at the position of the first of them. */
  function arranged(shown, isFiltered) {
    const sorted = shown.sort(inOrder);
    const elements = [];
    const groups = Map.groupBy(sorted.filter((row) => row.group), (row) => row.group);
    const done = new Set();
    for (const row of sorted) {
      if (!row.group) elements.push(lineOf(row));
      else if (!done.has(row.group)) {
        done.add(row.group);
        const points = groups.get(row.group);
        const isOpen = isFiltered || opened.has(row.group) || (points.length <= FEW_POINTS && !opened.has(`!${row.group}`));
        elements.push(groupLine(row.group, points, isOpen));
        if (isOpen) elements.push(...points.map(lineOf));
      }
    }
    // A new sweep has no points yet.
    const begun = about.sweeps.filter((name) => !isFiltered && !done.has(name));
    return [...begun.map((name) => groupLine(name, [], false)), ...elements];
  }

  function inOrder(a, b) {
    const value = shownColumns.find(({ key }) => key === order.key)?.value ?? ((row) => row.created);
    const [x, y] = [value(a), value(b)];
    if (typeof x === "number" && typeof y === "number" && x !== y) return order.down ? y - x : x - y;
    // Rows without a number are last in both orders.
    if (typeof x === "number" || typeof y === "number") return typeof x === "number" ? -1 : 1;
    const words = String(x ?? "").localeCompare(String(y ?? ""));
    return (order.down ? -words : words) || String(a.run).localeCompare(String(b.run));
  }

  /** Puts the rows into the table, if they have changed; the focus is kept. */
  function place(elements) {
    const current = [...body.children];
    if (current.length === elements.length && current.every((element, at) => element === elements[at])) return;
    const focused = document.activeElement;
    body.replaceChildren(...elements);
    if (focused && body.contains(focused)) focused.focus();
  }

  function lineOf(row) {
    let line = lines.get(row.run);
    if (!line) lines.set(row.run, (line = newLine(row)));
    if (line.row !== row) fill(line, row);
    else if (line.cells.created) say(line.cells.created, shownColumns.find(({ key }) => key === "created").text(row));
    line.box.checked = selected.has(row.run);
    return line.element;
  }

  function newLine(row) {
    const box = h("input", {
      type: "checkbox", "aria-label": `Select ${row.run}`,
      onchange: () => {
        if (box.checked) selected.add(row.run);
        else selected.delete(row.run);
        draw();
      },
    });
    const newCell = ({ key, title, kind = "" }) => [key, h("td", { class: kind, "data-title": title })];
    const cells = Object.fromEntries(shownColumns.map(newCell));
    const name = row.group ? row.run.slice(row.group.length + 1) : row.run;
    const tags = h("span", { class: "tags" });
    cells.run.append(h("a", { href: runAddress(row.run), class: "name" }, name), tags);
    const bar = h("progress", { "aria-hidden": "true" });
    const step = h("span");
    cells.step?.append(step, bar);
    const element = h("tr", { class: row.group ? "point" : "" }, h("td", { class: "select-cell" }, box), Object.values(cells));
    return { element, cells, box, bar, step, tags, row: null };
  }

  function fill(line, row) {
    if (line.row?.state !== row.state) line.cells.state.replaceChildren(stateSign(row.state));
    line.element.title = row.error ?? "";
    for (const { key, text, value, isText } of shownColumns) {
      if (text) say(line.cells[key], text(row));
      else if (isText && key === "experiment") say(line.cells[key], value(row) ?? "");
    }
    if (line.row?.tags?.join() !== row.tags?.join()) line.tags.replaceChildren(...(row.tags ?? []).map(tagSign));
    say(line.step, row.part_read < 1 ? `reading ${Math.round(100 * row.part_read)}%` : number(row.step));
    line.bar.hidden = !(row.steps > 0) || row.step === null;
    line.bar.max = row.steps || 1;
    line.bar.value = Math.min(row.step ?? 0, row.steps || 1);
    line.bar.title = row.steps ? `of ${number(row.steps)} steps` : "";
    line.cells.sketch?.replaceChildren(sketch(row.sketch ?? []));
    line.row = row;
  }

  function groupLine(name, points, isOpen) {
    const isSweep = about.sweeps.includes(name);
    const words = wordsAbout(points, isSweep ? "point" : "run");
    const line = groupLines.get(name);
    if (line?.words === words && line.isOpen === isOpen) return line.element;
    const hadFocus = line?.element.contains(document.activeElement);
    const toggle = h("button", {
      type: "button", class: "plain", "aria-expanded": String(isOpen), "aria-label": `Runs of ${name}`,
      onclick: () => {
        opened.delete(name), opened.delete(`!${name}`);
        opened.add(isOpen ? `!${name}` : name);
        draw();
      },
    }, isOpen ? "▾" : "▸");
    const link = isSweep ? h("a", { href: sweepAddress(name), class: "name" }, name) : h("b", {}, name);
    const element = h("tr", { class: "sweep" }, h("td", { class: "select-cell" }, toggle),
      h("td", { colSpan: shownColumns.length }, link, " ", h("span", { class: "soft" }, words)));
    groupLines.set(name, { element, words, isOpen });
    if (hadFocus) queueMicrotask(() => toggle.focus());
    return element;
  }

  function wordsAbout(points, each) {
    const states = Map.groupBy(points, (row) => row.state);
    const counts = [...states].map(([state, of]) => `${of.length} ${state}`).join(", ");
    const best = points.map((row) => row.best).filter((value) => typeof value === "number");
    const lowest = best.length ? `, lowest loss ${number(Math.min(...best))}` : "";
    if (!points.length) return "no points yet";
    return `${points.length} ${each}${points.length === 1 ? "" : "s"}: ${counts}${lowest}`;
  }

  function drawEmpty(isShown) {
    empty.hidden = isShown > 0;
    if (isShown) return;
    const nothing = rows.size ? [h("p", {}, "No run matches the filter.")] : [
      h("h1", {}, "No runs yet"),
      about.trouble ? h("p", { class: "trouble" }, about.trouble) : null,
      h("p", {}, "Runs in ", h("code", {}, about.folder), " appear here. Start one:"),
      h("pre", {}, "lapwing train adding"),
      h("p", {}, h("code", {}, "lapwing list"), " shows other experiments."),
    ];
    empty.replaceChildren(...nothing.filter(Boolean));
  }

  function move(by) {
    const links = [...body.querySelectorAll("a.name")];
    const at = links.indexOf(document.activeElement?.closest("tr")?.querySelector("a.name"));
    links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  }

  useKeys({
    "/": () => filter.focus(),
    j: () => move(1),
    k: () => move(-1),
    x: () => document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
    c: openComparison,
  });
  const stop = listen({}, take);
  const clock = setInterval(draw, 10000);
  return () => {
    stop();
    clearInterval(clock);
    choice.close();
  };
}

/** By which column the runs are sorted: as the address says, else as it was here the last time. */
function storedOrder() {
  const sort = addressParts().parameters.get("sort");
  if (sort) return { key: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  const { key, down } = recall("order") ?? NEWEST;
  return { key: String(key), down: Boolean(down) };
}

const wordsOf = (row) => [row.run, row.experiment, row.state, ...(row.tags ?? [])].join(" ").toLowerCase();
const tagSign = (tag) => h("span", { class: "tag" }, tag);

// A sweep: what was asked for, its heat map, the summary of its points, and the points themselves.

import { pictureBox } from "./about.js";
import { h, pairs, section, stateSign, table } from "./dom.js";
import { compareAddress, number, runAddress } from "./format.js";
import { ask, listen } from "./live.js";

const MOST_COMPARED = 12;

export function showSweep(main, [name]) {
  const rows = new Map();
  const about = h("div");
  const points = h("div");
  let seen = "";
  main.append(h("h1", {}, name), about, points);
  document.title = `${name} · Lapwing board`;

  function take(message) {
    for (const row of message.rows) if (row.sweep === name) rows.set(row.run, row);
    const shown = [...rows.values()].sort((a, b) => (a.best ?? Infinity) - (b.best ?? Infinity));
    const lines = shown.map((row) => [h("a", { href: runAddress(row.run) }, row.run.slice(name.length + 1)), stateSign(row.state),
      number(row.step), number(row.loss), number(row.best)]);
    const best = shown.slice(0, MOST_COMPARED).map((row) => row.run);
    const link = h("p", {}, h("a", { href: compareAddress(best) }, `Compare the ${best.length} best`));
    points.replaceChildren(section("Points", best.length > 1 ? link : null, table(["point", "state", "step", "loss", "lowest"], lines, "numbers")) ?? "");
    const states = JSON.stringify(shown.map((row) => [row.run, row.state]));
    if (states !== seen) {
      seen = states;
      look();
    }
  }

  async function look() {
    try {
      const told = await ask("sweep", { sweep: name });
      const parts = [
        section("Heat map", told.pictures.map((picture) => pictureBox({ sweep: name, name: picture.name }, picture))),
        section("Summary", summaryTable(told.summary)),
        section("What was asked for", told.spec.length ? pairs(told.spec.map(([path, value]) => [path, plain(value)])) : null),
      ];
      about.replaceChildren(...parts.filter(Boolean));
    } catch (error) {
      about.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  return listen({}, take);
}

/** A list of records as a table, with the columns that they have. */
function summaryTable(summary) {
  const records = Array.isArray(summary) ? summary : Object.values(summary ?? {}).find((part) => Array.isArray(part) && part.length);
  if (!records?.length) return null;
  const columns = [...new Set(records.flatMap((record) => Object.keys(record)))];
  return table(columns, records.map((record) => columns.map((column) => plain(record[column]))), "numbers");
}

function plain(value) {
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? number(value) : value;
}

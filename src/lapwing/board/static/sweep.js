// A sweep: its definition, its heat map, the summary of its points, and the points.

import { pictureBox } from "./about.js";
import { h, pairs, section, stateSign, table } from "./dom.js";
import { compareAddress, duration, number, plain, runAddress } from "./format.js";
import { ask, listen } from "./live.js";

const MOST_COMPARED = 12;
const NUMBERS = ["finished", "mean", "spread", "least", "most", "success"];

export function showSweep(main, [name]) {
  const rows = new Map();
  const about = h("div");
  const points = h("div");
  const settings = h("div");
  let seen = "";
  main.append(h("h1", {}, name), about, points, settings);
  document.title = `${name} · Lapwing board`;

  function take(message) {
    for (const row of message.rows) if (row.sweep === name) rows.set(row.run, row);
    const shown = [...rows.values()].sort((a, b) => (a.best ?? Infinity) - (b.best ?? Infinity));
    const lines = shown.map((row) => {
      const point = h("a", { href: runAddress(row.run) }, row.run.slice(name.length + 1));
      return [point, stateSign(row.state), number(row.step), number(row.loss), number(row.best)];
    });
    const best = shown.slice(0, MOST_COMPARED).map((row) => row.run);
    const link = h("p", {}, h("a", { href: compareAddress(best) }, `Compare the ${best.length} best`));
    const all = table(["point", "state", "step", "loss", "lowest"], lines, "numbers states");
    points.replaceChildren(section("Points", best.length > 1 ? link : null, all));
    const states = JSON.stringify(shown.map((row) => [row.run, row.state]));
    if (states !== seen) {
      seen = states;
      loadDetails();
    }
  }

  async function loadDetails() {
    try {
      const details = await ask("sweep", { sweep: name });
      const parts = [
        section("Heat map", details.pictures.map((picture) => pictureBox({ sweep: name, name: picture.name }, picture))),
        section("Summary", summaryOf(details.summary)),
      ];
      const definition = [
        section("Definition", pairs(details.asked)),
        section("Settings of all points", pairs(details.config)),
      ];
      about.replaceChildren(...parts.filter(Boolean));
      settings.replaceChildren(...definition.filter(Boolean));
    } catch (error) {
      about.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  return listen({}, take);
}

/** The results so far: a row for each combination, over its seeds, and the points that failed with their errors. */
function summaryOf(summary) {
  if (!Array.isArray(summary?.rows)) return null;
  const { experiment, metric, better, goal, points, finished, best, seconds, rows, failed = [] } = summary;
  const success = goal === null ? "" : `, goal ${number(goal)}`;
  const judged = `${experiment}, judged by ${metric} (${better} is better${success})`;
  const done = `${finished} of ${points} points finished in ${duration(seconds ?? 0)}`;
  const sentence = `${judged}: ${done}${best ? `; best is ${best}` : ""}.`;
  const axes = [...new Set(rows.flatMap((row) => Object.keys(row.values ?? {})))];
  const lines = rows.map((row) => [...axes.map((axis) => row.values?.[axis]), ...NUMBERS.map((name) => row[name])].map(plain));
  return [
    h("p", {}, sentence),
    table([...axes, ...NUMBERS], lines, "numbers"),
    failed.map(({ point, error }) => h("p", { class: "trouble" }, h("b", {}, point), ` ${error}`)),
  ].flat();
}

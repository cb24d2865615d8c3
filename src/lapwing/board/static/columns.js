// The columns of the table of runs: some of the board's own, the metrics of the runs, and their settings.

import { age, number, plain, speed } from "./format.js";
import { addressParts, joined, recall, remember, setParameters, split } from "./view.js";

// A column: its key, its title, the value by which it is sorted, its text and its class.
const OWN = {
  experiment: { title: "experiment", value: (row) => row.experiment, isText: true, kind: "wide-only" },
  step: { title: "step", value: (row) => row.step, kind: "number" },
  rate: { title: "effective learning rate", value: (row) => row.effective_learning_rate,
    text: (row) => number(row.effective_learning_rate, 4), kind: "number wide-only" },
  speed: { title: "steps/s", value: (row) => row.speed, text: (row) => speed(row.speed), kind: "number wide-only" },
  created: { title: "age", value: (row) => row.created, text: (row) => (row.created ? age(row.created) : ""), kind: "number wide-only" },
  sketch: { title: "", words: "curve of the loss", value: () => null, kind: "sketch-cell" },
};
const PARTS = { last: [0, ""], min: [1, "lowest "], max: [2, "highest "] };
const DEFAULT = ["experiment", "step", "last:loss", "min:loss", "EVALUATION", "rate", "speed", "created", "sketch"];
const MOST_EVALUATIONS = 2;
const FIRST = [
  { key: "run", title: "run", value: (row) => row.run, isText: true },
  { key: "state", title: "state", value: (row) => row.state, isText: true },
];

export class Columns {
  constructor() {
    this.chosen = split(addressParts().parameters.get("columns")) ?? recall("columns") ?? null;
    if (!Array.isArray(this.chosen)) this.chosen = null;
    setParameters({ columns: this.chosen && joined(this.chosen) });
    this.metrics = new Set();
    this.settings = new Map(); // The values of each setting, as text.
  }

  /** Learns what the runs have; returns whether that changes the default columns. */
  learn(rows, settings) {
    const before = this.keys().join();
    for (const row of rows) for (const name of Object.keys(row.metrics ?? {})) this.metrics.add(name);
    for (const values of Object.values(settings)) {
      for (const [name, value] of Object.entries(values)) {
        if (!this.settings.has(name)) this.settings.set(name, new Set());
        this.settings.get(name).add(JSON.stringify(value));
      }
    }
    return before !== this.keys().join();
  }

  /** The keys of the columns, without those that are always there. */
  keys() {
    if (this.chosen) return this.chosen;
    const evaluations = [...this.metrics].filter((name) => name.startsWith("eval_")).slice(0, MOST_EVALUATIONS);
    return DEFAULT.flatMap((key) => (key === "EVALUATION" ? evaluations.map((name) => `last:${name}`) : [key]));
  }

  choose(keys) {
    this.chosen = keys;
    remember("columns", keys);
    setParameters({ columns: keys && joined(keys) });
  }

  /** The columns as they are shown. `settingsOf` has the settings of a run by its name. */
  shown(settingsOf) {
    return [...FIRST, ...this.keys().map((key) => column(key, settingsOf)).filter(Boolean)];
  }

  /** For the dialog that chooses. Settings that differ between the runs come first. */
  groups() {
    const own = Object.entries(OWN).map(([key, { title, words = title }]) => ({ name: null, boxes: [{ key, words }] }));
    const parts = [["last", "latest"], ["min", "lowest"], ["max", "highest"]];
    const metrics = [...this.metrics].map((name) => ({ name, boxes: parts.map(([part, words]) => ({ key: `${part}:${name}`, words })) }));
    const bySpread = [...this.settings].sort(([, a], [, b]) => Number(b.size > 1) - Number(a.size > 1));
    const settings = bySpread.map(([name, values]) => {
      const words = values.size > 1 ? `${name} (${values.size} values)` : name;
      return { name: null, boxes: [{ key: `setting:${name}`, words }] };
    });
    return [{ title: "Of the run", rows: own }, { title: "Metrics", rows: metrics }, { title: "Settings", rows: settings }];
  }
}

function column(key, settingsOf) {
  if (OWN[key]) return { key, ...OWN[key] };
  const [part, name] = [key.slice(0, key.indexOf(":")), key.slice(key.indexOf(":") + 1)];
  if (part === "setting") {
    const value = (row) => settingsOf(row.run)?.[name];
    return { key, title: name, value, text: (row) => String(plain(value(row)) ?? ""), kind: "number chosen" };
  }
  if (!PARTS[part]) return null;
  const [place, words] = PARTS[part];
  const value = (row) => row.metrics?.[name]?.[place];
  return { key, title: `${words}${name.replaceAll("_", " ")}`, value, text: (row) => number(value(row), 4),
    kind: "number", isLowFirst: part === "min" || /loss|error/.test(name) };
}

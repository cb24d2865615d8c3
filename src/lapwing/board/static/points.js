// The points of a sweep as data: what was varied, and a number of each point.

const PARTS = { last: [0, "latest "], min: [1, "lowest "], max: [2, "highest "] };
const SEEDS = ["seed", "seeds"];

/** The settings that differ between points, those of the grid first and the seed last. */
export function axesOf(points, grid) {
  const names = [...new Set(points.flatMap(({ settings }) => Object.keys(settings)))];
  const differs = (name) => new Set(points.map(({ settings }) => JSON.stringify(settings[name] ?? null))).size > 1;
  const asked = grid.filter((name) => names.includes(name));
  const differing = names.filter((name) => !asked.includes(name) && differs(name));
  const isSeed = (name) => SEEDS.includes(name);
  return [...asked, ...differing.filter((name) => !isSeed(name)), ...differing.filter(isSeed)];
}

/** The names of the axes in a sweep's definition, where it lists them as `width=8,16`. */
export function gridOf(asked) {
  const lines = asked.filter(([path]) => path === "grid" || path.startsWith("grid")).map(([, value]) => value).flat();
  return lines.filter((line) => typeof line === "string" && line.includes("=")).map((line) => line.slice(0, line.indexOf("=")).trim());
}

/** Which numbers can be shown: the keys of `valueOf` with their words. */
export function measuresOf(points) {
  const names = [...new Set(points.flatMap(({ row }) => Object.keys(row.metrics ?? {})))];
  return names.flatMap((name) => Object.entries(PARTS).map(([part, [, words]]) => ({ key: `${part}:${name}`, words: `${words}${name}` })));
}

/** A number of a point, by its key `min:eval_loss`; null if there is none. */
export function valueOf({ row }, key) {
  const [part, name] = [key.slice(0, key.indexOf(":")), key.slice(key.indexOf(":") + 1)];
  return row.metrics?.[name]?.[PARTS[part]?.[0]] ?? null;
}

/** Different values in their order: numbers by size, words by the alphabet. */
export function sortedValues(values) {
  const different = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  const areNumbers = different.every((value) => typeof value === "number");
  return different.sort((a, b) => (areNumbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true })));
}

/** Whether numbers are better on a log axis: positive, and over more than a power of ten. */
export function isWide(values) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < values.length || !numbers.length) return false;
  const [low, high] = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
  return low > 0 && high / low > 10;
}

// Neither very light nor very dark, so that a line is seen on a light page and on a dark one, also by the colour-blind.
const SCALE = [[38, 104, 205], [112, 166, 224], [180, 183, 188], [235, 168, 92], [201, 78, 30]];

/** A colour from blue (0) to orange (1). */
export function colorAt(part) {
  const at = Math.max(0, Math.min(1, part)) * (SCALE.length - 1);
  const [low, rest] = [Math.min(Math.floor(at), SCALE.length - 2), at - Math.min(Math.floor(at), SCALE.length - 2)];
  return `rgb(${SCALE[low].map((from, index) => Math.round(from + rest * (SCALE[low + 1][index] - from))).join(",")})`;
}

export const plotlyScale = SCALE.map((color, index) => [index / (SCALE.length - 1), `rgb(${color.join(",")})`]);

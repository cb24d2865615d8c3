// Formatting of numbers, times and addresses.

/** A number in a few digits. Numbers that are not finite are words already. */
export function number(value, digits = 5) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en").replaceAll(",", "\u202f");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

/** Any value of a setting or a table, formatted. */
export function plain(value) {
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? number(value, 7) : value;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** The time since a moment, in its largest unit. */
export function age(since) {
  const seconds = Math.max(0, Date.now() / 1000 - since);
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? UNITS.at(-1);
  return `${Math.round(seconds / size)} ${unit}`;
}

/** A duration in its two largest units. */
export function duration(seconds) {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function speed(value) {
  if (value === null || value === undefined) return "";
  return value < 100 ? String(Number(value.toPrecision(3))) : number(Math.round(value));
}

export function moment(seconds) {
  return new Date(seconds * 1000).toLocaleString("sv");
}

export const runAddress = (name) => `#/run/${encodeURIComponent(name)}`;
export const compareAddress = (names) => `#/compare/${names.map(encodeURIComponent).join("/")}`;
export const sweepAddress = (name) => `#/sweep/${encodeURIComponent(name)}`;

/** Escaped text for plotly, which parses some HTML in its labels. */
export function label(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

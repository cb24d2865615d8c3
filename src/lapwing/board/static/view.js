// What a view remembers: in its address, so that it can be shared, and in this browser, for the next visit.

const PREFIX = "lapwing-board";

/** The parts of the address after #: its path, and the parameters of the view. */
export function addressParts() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?", 2);
  return { path, parameters: new URLSearchParams(query) };
}

/** Sets parameters of this view in the address, without opening the view again; null removes one. */
export function setParameters(values) {
  const { path, parameters } = addressParts();
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "") parameters.delete(name);
    else parameters.set(name, value);
  }
  const query = parameters.toString();
  history.replaceState(null, "", `#${path || "/"}${query ? `?${query}` : ""}`);
}

/** What this browser has stored under a name; undefined if nothing. */
export function recall(name) {
  try {
    return JSON.parse(localStorage.getItem(`${PREFIX}-${name}`)) ?? undefined;
  } catch {
    return undefined;
  }
}

export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`${PREFIX}-${name}`);
    else localStorage.setItem(`${PREFIX}-${name}`, JSON.stringify(value));
  } catch {
    // A browser that stores nothing forgets it with the page.
  }
}

/** A list of names as one parameter, and back. Names may contain anything. */
export const joined = (names) => names.map((name) => name.replace(/[%,]/g, encodeURIComponent)).join(",");
export const split = (text) => (text === null ? null : text.split(",").filter(Boolean).map(decodeURIComponent));

// Requests to the board, and streams that last as long as the page is visible.

const link = document.getElementById("link");

function show(state, word) {
  link.className = `link ${state}`;
  link.textContent = word;
}

/** The response to a request, or an error with the board's message. */
export async function ask(what, parameters = {}) {
  return answered(await fetch(`api/${what}?${query(parameters)}`));
}

/** Sends a command; the response has its id. */
export async function send(message) {
  const headers = { "Content-Type": "application/json" };
  return answered(await fetch("api/steer", { method: "POST", headers, body: JSON.stringify(message) }));
}

async function answered(response) {
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let sentence = text;
  try {
    sentence = JSON.parse(text).error;
  } catch {
    // A message that is not JSON is shown as it is.
  }
  throw new Error(sentence);
}

/** A query string; lists become repeated parameters. */
export function query(parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  return new URLSearchParams(pairs).toString();
}

/**
 * Calls `take` with each message of a stream until the returned function is called. A hidden page has no stream: browsers
 * allow few streams to one address, and the board need not work for it. `gone` gets the board's message when the run no
 * longer exists, and null when the board refuses the stream.
 */
export function listen(parameters, take, gone = () => {}) {
  let source = null;
  const open = () => {
    source = new EventSource(`api/live?${query(parameters)}`);
    source.onopen = () => show("live", "live");
    source.onmessage = (event) => take(JSON.parse(event.data));
    source.onerror = () => {
      const isRefused = source.readyState === EventSource.CLOSED;
      show("off", isRefused ? "not connected" : "reconnecting");
      if (isRefused) gone(null);
    };
    source.addEventListener("gone", (event) => {
      close();
      gone(JSON.parse(event.data).error);
    });
  };
  const close = () => source?.close();
  const follow = () => {
    close();
    if (document.hidden) show("", "paused");
    else open();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return () => {
    document.removeEventListener("visibilitychange", follow);
    close();
  };
}

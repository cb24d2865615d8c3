// Asking the board: answers once, and streams that last as long as the page is looked at.

const link = document.getElementById("link");

function show(state, word) {
  link.className = `link ${state}`;
  link.textContent = word;
}

/** The answer to a question, or an error whose message is the board's own sentence. */
export async function ask(what, parameters = {}) {
  return answered(await fetch(`api/${what}?${query(parameters)}`));
}

/** Sends a command; the answer has its id. */
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
    // A sentence that is no JSON is shown as it is.
  }
  throw new Error(sentence);
}

/** Lists become repeated parameters. */
export function query(parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  return new URLSearchParams(pairs).toString();
}

/**
 * Hears what is new until the function that is returned is called. A page that nobody sees hears nothing: browsers allow
 * few streams to one address, and the board need not work for it. `gone` gets the board's sentence when what was heard is
 * no longer there, and null when the board did not want to be heard at all.
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
    if (document.hidden) show("", "resting");
    else open();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return () => {
    document.removeEventListener("visibilitychange", follow);
    close();
  };
}

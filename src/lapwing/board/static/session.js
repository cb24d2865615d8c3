// The token of a board: taken from the address after #, which browsers do not send, and exchanged for a cookie.

/** The token in the address, which loses it, as does the history; null if there is none. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (!found) return null;
  history.replaceState(null, "", location.pathname);
  return found;
}

/** Exchanges a token for a cookie; an error with the board's message if it is refused. */
export async function signIn(token) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("api/sign-in", { method: "POST", headers, body: JSON.stringify({ token }) });
  if (!response.ok) throw new Error(await response.text());
}

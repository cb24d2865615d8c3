// The page of somebody without a cookie: signs in with the token of the address, or with one that is typed.

import { signIn, takeToken } from "./session.js";

const field = document.getElementById("token");
const refused = document.getElementById("refused");

async function enter(token) {
  try {
    await signIn(token);
    location.reload();
  } catch (error) {
    refused.textContent = error.message;
    refused.hidden = false;
    field.focus();
  }
}

document.getElementById("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(field.value.trim());
});
window.addEventListener("hashchange", () => enterFromAddress());

function enterFromAddress() {
  const token = takeToken();
  if (token) enter(token);
}

enterFromAddress();

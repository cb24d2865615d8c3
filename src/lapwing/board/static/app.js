// Navigation: the address after # selects a view, and a view returns a function that closes it.

import { h } from "./dom.js";
import { showComparison } from "./compare.js";
import { showRun } from "./run.js";
import { signIn, takeToken } from "./session.js";
import { showSweep } from "./sweep.js";
import { showTable } from "./table.js";
import { addressParts } from "./view.js";

const main = document.getElementById("main");
const help = document.getElementById("help");
const views = { run: showRun, compare: showComparison, sweep: showSweep };
let leave = () => {};
let keys = {};

function open() {
  const token = takeToken(); // Of somebody who is here already, perhaps with fewer rights.
  if (token) {
    signIn(token).catch(() => {}).then(() => location.reload());
    return;
  }
  leave();
  const [, kind = "", ...names] = addressParts().path.split("/");
  main.replaceChildren();
  keys = {};
  const view = views[kind] ?? showTable;
  try {
    leave = view(main, names.map(decodeURIComponent), (more) => Object.assign(keys, more));
  } catch (error) {
    leave = () => {};
    main.append(h("p", { class: "trouble" }, error.message));
  }
  window.scrollTo(0, 0);
}

document.getElementById("keys").addEventListener("click", () => help.showModal());
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select, dialog");
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const action = { "?": () => help.showModal(), u: () => (location.hash = "#/"), ...keys }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
window.addEventListener("hashchange", open);
open();

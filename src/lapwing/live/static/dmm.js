// A running machine: what the server says is shown, what a person does is sent. Nothing is changed here before the server
// has changed it, so that the page shows what runs.

import { machineDrawing } from "./dmm-drawing.js";
import { linkPanel } from "./dmm-links.js";
import { answersPlot } from "./dmm-plot.js";
import { h, say } from "./dom.js";
import { number } from "./format.js";
import { listen, send } from "./live.js";
import { signIn, takeToken } from "./session.js";

const CONFIRM_MS = 4000;
const get = (id) => document.getElementById(id);
const [play, step, restart, speed, undo, redo, trouble, said, saveButton, file] =
  ["play", "step", "restart", "speed", "undo", "redo", "trouble", "said", "save-button", "file"].map(get);

let state = { playing: false, edits: [], mayEdit: false };
let refused = ""; // What the server said about the last thing that was sent.

/** Sends a command; true if it was done, and otherwise its sentence is shown. */
async function tell(message) {
  try {
    const answer = await send(message);
    refused = "";
    showTrouble();
    return answer;
  } catch (error) {
    refused = error.message;
    showTrouble();
    return null;
  }
}

const edit = async (what) => (await tell({ do: "edit", edit: what })) !== null;
const showTrouble = () => say(trouble, refused || state.trouble || "");

const drawing = machineDrawing(get("drawing"), (index) => links.choose(index));
const links = linkPanel(get("links"), edit, (index) => drawing.choose(index));
const plot = answersPlot(get("plot"), get("answers-now"));

function take(message) {
  state = { ...state, ...message };
  if (message.file !== undefined) begin(message);
  say(get("cycle"), number(state.cycle));
  say(play, state.playing ? "Pause" : "Play");
  document.body.classList.toggle("playing", state.playing);
  if (!speed.matches(":active")) speed.value = String(Math.log10(state.speed));
  say(get("speed-shown"), `${number(state.speed, 2)} cycles/s`);
  for (const [button, what] of [[undo, state.undo], [redo, state.redo]]) {
    button.disabled = !state.may_edit || !what;
    button.title = what ? `${button === undo ? "Take back" : "Make again"}: ${what}` : "";
  }
  showTrouble();
  showText(state.text);
  if (message.edits) showEdits(message.edits);
  const chooseAgain = message.drawing ? links.offer(message.drawing) : null;
  if (message.drawing) {
    drawing.draw(message.drawing);
    const { hidden, links: strongest } = message.drawing;
    say(get("hidden"), hidden ? `These are the ${strongest.length} strongest of ${number(strongest.length + hidden)} links.` : "");
  }
  drawing.show(message.numbers);
  links.show(message.numbers);
  showValues(message.numbers.values);
  chooseAgain?.();
  plot.add(message.answers);
  plot.draw(marks());
  if (!state.may_edit) for (const each of document.querySelectorAll("main :is(button, input, select)")) each.disabled = true;
}

/** The first message of a stream. */
function begin(message) {
  document.title = `${message.file}: live`;
  say(get("place"), message.may_edit ? message.file : `${message.file} (to watch)`);
  say(get("journal"), message.journal ? `Each is a line of ${message.journal}.` : "");
  plot.keep(message.history);
  if (!file.value) file.value = message.file;
  if (message.may_edit) for (const each of document.querySelectorAll("main :is(button, input):disabled")) each.disabled = false;
  links.choose(null);
}

/** The cycles of the edits since the last restart. */
function marks() {
  const begun = state.edits.findLastIndex(([, words]) => words === "restart");
  return state.edits.slice(begun + 1).map(([cycle]) => cycle);
}

function showEdits(edits) {
  const lines = edits.map(([cycle, words]) => h("li", {}, h("span", {}, number(cycle)), words));
  get("edits").replaceChildren(...(lines.length ? lines.reverse() : [h("li", {}, "None yet.")]));
}

/** What every neuron puts out, in full; the rows of the neurons that stay are kept. */
function showValues(values) {
  const body = get("values");
  const names = Object.keys(values);
  if ([...body.rows].map((row) => row.cells[0].textContent).join("\n") !== names.join("\n")) {
    body.replaceChildren(...names.map((name) => h("tr", {}, h("td", {}, name), h("td"))));
  }
  names.forEach((name, index) => say(body.rows[index].cells[1], values[name]));
}

function showText(text) {
  get("reading").hidden = !text;
  if (!text) return;
  for (const part of ["before", "now", "after"]) say(get(part), text[part].replaceAll(" ", "␣"));
}

play.addEventListener("click", () => tell({ do: state.playing ? "pause" : "play" }));
step.addEventListener("click", () => tell({ do: "step" }));
restart.addEventListener("click", () => edit({ edit: "restart" }));
undo.addEventListener("click", () => edit({ edit: "undo" }));
redo.addEventListener("click", () => edit({ edit: "redo" }));
speed.addEventListener("input", () => {
  const wanted = 10 ** Number(speed.value);
  say(get("speed-shown"), `${number(wanted, 2)} cycles/s`);
});
speed.addEventListener("change", () => tell({ do: "speed", speed: 10 ** Number(speed.value) }));

get("text").addEventListener("submit", async (event) => {
  event.preventDefault();
  const kind = event.submitter?.value === "text" ? "text" : "append";
  if (await edit({ edit: kind, text: get("more").value })) get("more").value = "";
});

// A file that exists is overwritten only when the button is pressed once more.
let confirming = null;
const askNoMore = () => {
  confirming = clearTimeout(confirming);
  saveButton.classList.remove("asks");
  say(saveButton, "Save");
};
file.addEventListener("input", askNoMore);
get("save").addEventListener("submit", async (event) => {
  event.preventDefault();
  const overwrite = Boolean(confirming);
  askNoMore();
  const answer = await tell({ do: "save", file: file.value.trim(), overwrite });
  say(said, answer ? `Saved as ${answer.saved}.` : "");
  if (!answer && refused.includes("to overwrite it")) {
    confirming = setTimeout(askNoMore, CONFIRM_MS);
    saveButton.classList.add("asks");
    say(saveButton, "Overwrite?");
  }
});

const keys = { " ": play, s: step, z: undo, y: redo };
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=range]), select, textarea, button");
  if (isTyping || event.metaKey || event.altKey || (event.ctrlKey && event.key !== "z" && event.key !== "y")) return;
  const button = keys[event.key];
  if (button && !button.disabled) {
    event.preventDefault();
    button.click();
  }
});

const token = takeToken(); // Of somebody who is here already, perhaps with fewer rights.
if (token) signIn(token).catch(() => {}).then(() => location.reload());
else listen({}, take);

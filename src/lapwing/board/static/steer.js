// Commands to a run while it runs. Each is listed with what became of it: sent, taken or refused, in the run's own words.

import { h, say } from "./dom.js";
import { number } from "./format.js";
import { send } from "./live.js";

const CHANGEABLE = ["weight_decay", "l1", "l2", "lasso"];

/** The panel of a run, and how to tell it what is known of the run now. */
export function steering(name) {
  const sent = [];
  const list = h("ul", { class: "sent", "aria-live": "polite" });
  const pause = button("Pause", () => order("pause"));
  const goOn = button("Go on", () => order("go on"));
  const checkpoint = button("Checkpoint", () => order("checkpoint"));
  const goal = "best, or the step of a checkpoint";
  const place = h("input", { size: 6, value: "best", "aria-label": "Roll back to", title: goal });
  const back = sure("Roll back to", () => order("rollback", { to: place.value.trim() }));
  const stop = sure("Stop", () => order("stop"));
  stop.classList.add("danger");
  const rate = field("learning rate", "learning_rate", (value) => order("set", { learning_rate: value }));
  const clip = field("clip", "clip", (value) => order("set", { clip: value }));
  const about = { size: 13, list: "changeable", placeholder: "weight_decay", "aria-label": "Name of what to set" };
  const otherName = h("input", about);
  const names = h("datalist", { id: "changeable" }, CHANGEABLE.map((each) => h("option", { value: each })));
  const other = field(otherName, "its value", (value) => order("set", { [otherName.value.trim()]: value }));
  const note = h("input", { placeholder: "a note for the journal", "aria-label": "Note", class: "note" });
  const noted = form([note, button("Note", null, "submit")], () => {
    if (note.value.trim()) order("note", { text: note.value }).then((was) => was && (note.value = ""));
  });
  const live = h("div", { class: "orders" }, rate, clip, other, names,
    h("div", { class: "row" }, pause, goOn, checkpoint, back, place, stop));
  const over = h("p", { class: "soft" });
  const element = h("section", { class: "steering" }, h("h2", {}, "Steer"), live, over, noted, list);

  async function order(command, values = {}) {
    const words = [command, ...Object.entries(values).map(([key, value]) => (command === "set" ? `${key}=${value}` : value))];
    const line = { id: null, state: "sent", element: h("li", { class: "waits" }) };
    const text = words.join(" ");
    line.show = (state, outcome) => {
      line.state = state;
      line.element.className = state;
      line.element.replaceChildren(h("code", {}, text), ` ${outcome}`);
    };
    line.show("waits", "is on its way");
    sent.unshift(line);
    list.prepend(line.element);
    while (list.children.length > 8) list.lastChild.remove();
    try {
      line.id = (await send({ run: name, command, arguments: values })).id;
      if (line.id === null) line.show("applied", "is in the journal");
      else line.show("waits", "is sent; the run looks between two steps");
      return true;
    } catch (error) {
      line.show("refused", `was not sent: ${error.message}`);
      return false;
    }
  }

  return {
    element,
    /** What the run has answered, and whether it can still be asked. */
    update(row, answers) {
      const isLive = row.state === "running" || row.state === "paused";
      live.hidden = !isLive;
      over.hidden = isLive;
      say(over, `The run is ${row.state}: it takes no commands, but notes. `
        + (row.state === "finished" ? "" : `lapwing resume ${name} goes on with it.`));
      pause.hidden = row.state === "paused";
      goOn.hidden = row.state !== "paused";
      const told = new Map(answers.map((answer) => [answer.id, answer]));
      for (const line of sent.filter((each) => each.state === "waits" && each.id)) {
        const answer = told.get(line.id);
        if (answer?.event === "applied") line.show("applied", `applied: ${answer.outcome}`);
        else if (answer) line.show("refused", `refused: ${answer.reason}`);
        else if (!isLive) line.show("refused", "was not taken: the run has ended");
      }
      rate.value.placeholder = number(row.learning_rate);
    },
  };
}

function button(words, action, type = "button") {
  return h("button", { type, onclick: action }, words);
}

/** A button that asks once more before it does what cannot be taken back. */
function sure(words, action) {
  let asked = null;
  const calm = () => {
    asked = clearTimeout(asked);
    element.classList.remove("asks");
    say(element, words);
  };
  const element = button(words, () => {
    if (asked) {
      calm();
      action();
      return;
    }
    asked = setTimeout(calm, 4000);
    element.classList.add("asks");
    say(element, `${words}: sure?`);
  });
  return element;
}

function field(name, words, action) {
  const value = h("input", { size: 8, inputMode: "decimal", "aria-label": words, required: true });
  const parts = typeof name === "string" ? [h("label", {}, `${name} `, value)] : [name, value];
  const element = form([...parts, button("Set", null, "submit")], () => action(value.value.trim()));
  element.value = value;
  return element;
}

function form(parts, action) {
  return h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    action();
  } }, parts);
}

// Commands to a run, built from the board's table of commands and from what this run lets `set` change. Each command
// that was sent is listed with its answer: pending, applied or refused, in the run's own words.

import { h, say } from "./dom.js";
import { number } from "./format.js";
import { send } from "./live.js";

const MOST_LINES = 8;
const CONFIRM_MS = 4000;

/** The panel of a run, and a function that updates it. */
export function steering(name) {
  const sent = [];
  const list = h("ul", { class: "sent", "aria-live": "polite" });
  const [setters, actions, always] = ["", "actions", ""].map((kind) => h("div", { class: `orders ${kind}` }));
  const over = h("p", { class: "soft" });
  const element = h("section", { class: "steering", hidden: true }, h("h2", {}, "Steer"), setters, actions, over, always, list);
  let builtFrom = "";
  let parts = []; // Elements with the states in which they are shown.
  let fields = new Map(); // The input of each control, by name.

  /** Builds the controls if the table, or the names of what can be set, are new. */
  function build(commands, controls) {
    const from = JSON.stringify([commands, controls.map((control) => control.name)]);
    if (from === builtFrom) return;
    builtFrom = from;
    fields = new Map(controls.map((control) => [control.name, field(control.name, control)]));
    for (const group of [setters, actions, always]) group.replaceChildren();
    parts = commands.flatMap((command) => {
      const group = command.sets_controls ? setters : command.states ? actions : always;
      const elements = command.sets_controls ? [...fields.keys()].map((each) => setter(command, each)) : [trigger(command)];
      group.append(...elements);
      return elements.map((part) => ({ element: part, states: command.states }));
    });
  }

  function setter(command, control) {
    const input = fields.get(control);
    input.required = true;
    const label = h("label", {}, `${control.replaceAll("_", " ")} `, input);
    return form([label, button(command)], async () => {
      if (await order(command, { [control]: input.value.trim() })) input.value = "";
    });
  }

  /** A command as a button, with a field for each of its arguments. */
  function trigger(command) {
    const inputs = command.arguments.map((argument) => field(`${command.name} ${argument.name}`, argument));
    const act = async () => {
      const values = inputs.map((input, at) => [command.arguments[at].name, input.value.trim()]);
      const wasSent = await order(command, Object.fromEntries(values));
      if (wasSent) inputs.forEach((input, at) => (input.value = command.arguments[at].default ?? ""));
    };
    const press = command.confirm ? confirmed(command) : button(command);
    return form([press, ...inputs], () => (press.ask?.() ?? true) && act(), command.states ? "" : "always");
  }

  async function order(command, values) {
    const words = Object.entries(values).map(([key, value]) => (command.sets_controls ? `${key}=${value}` : value));
    const text = [command.name, ...words].join(" ");
    const line = { id: null, state: "waits", element: h("li") };
    line.show = (state, outcome) => {
      line.state = state;
      line.element.className = state;
      line.element.replaceChildren(h("code", {}, text), ` ${outcome}`);
    };
    line.show("waits", "is being sent");
    sent.unshift(line);
    list.prepend(line.element);
    while (list.children.length > MOST_LINES) list.lastChild.remove();
    try {
      line.id = (await send({ run: name, command: command.name, arguments: values })).id;
      if (line.id === null) line.show("applied", "is in the journal");
      else line.show("waits", "is sent; the run answers between two steps");
      return true;
    } catch (error) {
      line.show("refused", `refused: ${error.message}`);
      return false;
    }
  }

  return {
    element,
    /** Shows the commands that the run takes in its state, the values of its controls, and its answers. */
    update(row, { commands, controls, answers, may_steer: maySteer }) {
      element.hidden = !maySteer;
      build(commands, controls);
      for (const part of parts) part.element.hidden = Boolean(part.states && !part.states.includes(row.state));
      for (const control of controls) fields.get(control.name).placeholder = number(control.value);
      const isLive = row.state === "running" || row.state === "paused";
      setters.hidden = actions.hidden = !isLive;
      over.hidden = isLive;
      say(over, `The run is ${row.state} and takes no commands except notes. `
        + (row.state === "finished" ? "" : `lapwing resume ${name} continues it.`));
      const answered = new Map(answers.map((answer) => [answer.id, answer]));
      for (const line of sent.filter((each) => each.state === "waits" && each.id)) {
        const answer = answered.get(line.id);
        if (answer?.event === "applied") line.show("applied", `applied: ${answer.outcome}`);
        else if (answer) line.show("refused", `refused: ${answer.reason}`);
        else if (!isLive) line.show("refused", "refused: the run has ended");
      }
    },
  };
}

const capitalized = (name) => name[0].toUpperCase() + name.slice(1);

function button({ name, help }) {
  return h("button", { type: "submit", title: help }, capitalized(name));
}

/** A button that asks again before a command that cannot be undone: `ask` is true the second time. */
function confirmed(command) {
  let timer = null;
  const element = button(command);
  element.classList.add("danger");
  const reset = () => {
    timer = clearTimeout(timer);
    element.classList.remove("asks");
    say(element, capitalized(command.name));
  };
  element.ask = () => {
    if (timer) {
      reset();
      return true;
    }
    timer = setTimeout(reset, CONFIRM_MS);
    element.classList.add("asks");
    say(element, `${capitalized(command.name)}: sure?`);
    return false;
  };
  return element;
}

function field(label, { name, help, expected, type, default: value }) {
  const isText = type === "str";
  return h("input", { "aria-label": label, title: `${help}: ${expected}`, size: isText ? 20 : 8, class: isText ? "note" : "",
    placeholder: name, value: value ?? "" });
}

function form(parts, action, kind = "") {
  return h("form", { class: `row ${kind}`, onsubmit: (event) => {
    event.preventDefault();
    action();
  } }, parts);
}

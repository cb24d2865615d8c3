// A dialog of checkboxes: which columns, which charts.

import { h } from "./dom.js";

/**
 * A button that opens the dialog. `groups` returns the choices when it is opened: lists of `{ title, rows }`, each row a
 * name with its boxes `{ key, words }`. `chosen` returns the chosen keys, `choose` gets the new ones, or null for the
 * default.
 */
export function chooser(words, { groups, chosen, choose }) {
  const content = h("div", { class: "choices" });
  const find = h("input", { type: "search", placeholder: "find", "aria-label": "Find", oninput: narrow });
  const reset = h("button", { type: "button", onclick: () => (choose(null), fill()) }, "Default");
  const done = h("form", { method: "dialog" }, reset, " ", h("button", {}, "Done"));
  const dialog = h("dialog", { class: "chooser", "aria-label": words, onclose: () => dialog.remove() }, h("h2", {}, words), find, content, done);

  function fill() {
    const now = new Set(chosen());
    const box = ({ key, words: text }) => {
      const input = h("input", { type: "checkbox", checked: now.has(key), onchange: () => set(key, input.checked) });
      return h("label", {}, input, ` ${text}`);
    };
    const line = ({ name, boxes }) => {
      const cells = name === null ? boxes.map(box) : [h("span", { class: "choice-name" }, name), ...boxes.map(box)];
      return h("div", { class: "choice", "data-words": `${name ?? ""} ${boxes.map((each) => each.words).join(" ")}`.toLowerCase() }, cells);
    };
    const shown = groups().filter(({ rows }) => rows.length);
    content.replaceChildren(...shown.map(({ title, rows }) => h("fieldset", {}, h("legend", {}, title), rows.map(line))));
    narrow();
  }

  function set(key, isOn) {
    const rest = chosen().filter((each) => each !== key);
    choose(isOn ? [...rest, key] : rest);
  }

  function narrow() {
    const word = find.value.trim().toLowerCase();
    for (const line of content.querySelectorAll(".choice")) line.hidden = !line.dataset.words.includes(word);
  }

  function open() {
    find.value = "";
    fill();
    document.body.append(dialog);
    dialog.showModal();
  }

  return { button: h("button", { type: "button", onclick: open }, words), close: () => dialog.remove() };
}

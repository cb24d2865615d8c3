// Tabs of a page. The open one is in the address.

import { h } from "./dom.js";
import { addressParts, setParameters } from "./view.js";

/** Tabs from `{ key, title, panel }`, the first of them the default; `opened` is called with the key of the open one. */
export function tabs(all, opened) {
  const buttons = new Map();
  const list = h("div", { class: "tabs", role: "tablist", onkeydown: move });
  for (const { key, title, panel } of all) {
    const button = h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, onclick: () => open(key) }, title);
    panel.id = `panel-${key}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${key}`);
    buttons.set(key, button);
    list.append(button);
  }

  function open(key) {
    for (const { key: each, panel } of all) {
      const isOpen = each === key;
      panel.hidden = !isOpen;
      buttons.get(each).setAttribute("aria-selected", String(isOpen));
      buttons.get(each).tabIndex = isOpen ? 0 : -1;
    }
    setParameters({ tab: key === all[0].key ? null : key });
    opened(key);
  }

  function move(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const shown = all.filter(({ key }) => !buttons.get(key).hidden);
    const at = shown.findIndex(({ panel }) => !panel.hidden);
    const { key } = shown.at((at + by) % shown.length);
    open(key);
    buttons.get(key).focus();
  }

  const asked = addressParts().parameters.get("tab");
  const first = all.some(({ key }) => key === asked) ? asked : all[0].key;
  return { element: list, open, buttons, begin: () => open(first) };
}

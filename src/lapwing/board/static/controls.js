// How curves are shown: by step or by time, log or linear, smoothing, and which metric. Kept between pages.

import { h } from "./dom.js";
import { recall, remember } from "./view.js";

const DEFAULTS = { isLog: true, byTime: false, smoothing: 0.025, metric: "" };
export const settings = { ...DEFAULTS, ...recall("curves") };

/** The controls as elements, and their keys. `changed` is called with the name of the changed setting. */
export function curveControls(changed) {
  const set = (name, value) => {
    settings[name] = value;
    remember("curves", settings);
    changed(name);
  };
  const log = checkbox("log axis", settings.isLog, (on) => set("isLog", on));
  const time = checkbox("by time", settings.byTime, (on) => set("byTime", on));
  // The slider is the square root, so that small values are easy to choose.
  const slider = h("input", { type: "range", min: "0", max: "0.5", step: "0.01", value: String(Math.sqrt(settings.smoothing)),
    oninput: () => set("smoothing", Number(slider.value) ** 2) });
  const select = h("select", { "aria-label": "Metric", onchange: () => set("metric", select.value) });
  return {
    elements: [log.element, time.element, h("label", {}, "smooth ", slider)],
    select,
    offer: (names, chosen) => {
      if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
        select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      }
      select.value = chosen;
    },
    keys: { l: () => log.box.click(), t: () => time.box.click() },
  };
}

function checkbox(words, value, changed) {
  const box = h("input", { type: "checkbox", checked: value, onchange: () => changed(box.checked) });
  return { element: h("label", {}, box, ` ${words}`), box };
}

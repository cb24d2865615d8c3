// The panel of links: pick one, move its weight, remove it, add another.

import { h, say } from "./dom.js";
import { number } from "./format.js";

/** The panel; `edit(edit)` sends one and answers whether it was made, `chosen(index)` is called when a link is picked. */
export function linkPanel(place, edit, chosen) {
  let links = [];
  let flows = [];
  let at = null; // The chosen link, by its index.
  let awaited = null; // A link that was added, to be chosen when it comes.
  let moving = still(); // How the slider is moved.

  const pick = h("select", { "aria-label": "Link", class: "grow", onchange: () => choose(pick.value === "" ? null : Number(pick.value)) });
  const slider = h("input", { type: "range", "aria-label": "Weight, as a slider", step: "any" });
  const field = h("input", { type: "number", "aria-label": "Weight", step: "any", size: 8 });
  const remove = h("button", { type: "button", class: "danger", onclick: () => send("remove") }, "Remove");
  const about = h("p", { class: "soft" });
  const source = h("select", { "aria-label": "From", class: "grow" });
  const key = h("input", { "aria-label": "Key", placeholder: "key", size: 4,
    title: "Of the field, only what is under this key; empty: all of it" });
  const target = h("select", { "aria-label": "To", class: "grow" });
  const weight = h("input", { type: "number", "aria-label": "Weight of the new link", step: "any", value: "1", size: 6 });
  const add = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    addLink();
  } }, source, key, "→", target, weight, h("button", {}, "Add"));
  place.append(h("div", { class: "row" }, pick), h("div", { class: "row" }, slider, field, remove), about,
    h("h3", {}, "Add a link"), add);

  slider.addEventListener("input", () => drag({ wanted: Number(slider.value), over: false }));
  slider.addEventListener("change", () => drag({ wanted: Number(slider.value), over: true }));
  field.addEventListener("change", () => {
    if (field.value !== "") send("weight", { weight: field.valueAsNumber });
  });

  const named = () => ({ to: links[at].to, from: links[at].from, key: links[at].key });
  const send = (kind, more = {}) => at !== null && edit({ edit: kind, ...named(), ...more });

  /** Sends the weights of a moving slider one at a time, without those that came meanwhile; undo takes all of them back. */
  async function drag(change) {
    const now = Object.assign(moving, change);
    if (now.busy) return;
    now.busy = true;
    while (now === moving && now.wanted !== now.sent) {
      now.sent = now.wanted;
      const isMade = await send("weight", { weight: now.sent, ...(now.isBegun ? { continues: true } : {}) });
      now.isBegun = isMade;
    }
    now.busy = false;
    if (now.over && now === moving) moving = still();
  }

  async function addLink() {
    const wanted = { to: target.value, from: source.value, key: key.value ? key.value.split("/") : [] };
    awaited = wanted; // Its drawing may come before the answer.
    if (!(await edit({ edit: "add", ...wanted, weight: weight.value === "" ? null : weight.valueAsNumber }))) awaited = null;
  }

  function choose(index) {
    at = index !== null && index < links.length ? index : null;
    pick.value = at === null ? "" : String(at);
    moving = still();
    for (const each of [slider, field, remove]) each.disabled = at === null;
    if (at !== null) setReach(Math.max(2, 2 * Math.abs(flows[at][0])));
    show();
    chosen(at);
  }

  function setReach(reach) {
    slider.min = String(-reach);
    slider.max = String(reach);
  }

  function show() {
    if (at === null) {
      say(about, links.length ? "Pick a link here or in the drawing." : "There are no links.");
      field.value = "";
      return;
    }
    const [now, flow] = flows[at];
    if (document.activeElement !== field) field.value = String(Number(Number(now).toPrecision(8)));
    if (moving.wanted === null) {
      if (Math.abs(now) > Number(slider.max)) setReach(2 * Math.abs(now));
      slider.value = String(now);
    }
    const kind = [links[at].hard ? "fixed in training" : "", links[at].dead ? "carries nothing" : ""].filter(Boolean).join(", ");
    say(about, `${number(flow, 5)} flows${kind ? `; ${kind}` : ""}`);
  }

  return {
    offer(drawing) {
      const before = awaited ?? (at === null ? null : named());
      links = drawing.links;
      flows = links.map(() => [0, 0]);
      pick.replaceChildren(h("option", { value: "" }, `${links.length} links`),
        ...links.map((link, index) => h("option", { value: String(index) }, link.name)));
      offerFields(source, drawing.fields.from);
      offerFields(target, drawing.fields.to);
      const found = before ? links.findIndex((link) => isSame(link, before)) : -1;
      if (found !== -1) awaited = null;
      return () => choose(found === -1 ? null : found); // When the numbers are known.
    },
    show(numbers) {
      flows = numbers.flows;
      show();
    },
    choose,
  };
}

function isSame(a, b) {
  return a.to === b.to && a.from === b.from && a.key.join("\n") === b.key.join("\n");
}

/** A slider that nobody moves. */
function still() {
  return { wanted: null, sent: null, isBegun: false, over: false, busy: false };
}

function offerFields(select, names) {
  const before = select.value;
  select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
}

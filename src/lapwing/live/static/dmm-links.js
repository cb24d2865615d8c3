// The panel of links: pick one, move its weight, remove it, add another.

import { h, say } from "./dom.js";
import { number } from "./format.js";

/** The panel; `edit(edit)` sends one and answers whether it was made, `chosen(index)` is called when a link is picked. */
export function linkPanel(place, edit, chosen) {
  let links = [];
  let flows = [];
  let at = null; // The chosen link, by its index.
  let pending = null; // The last weight of a drag that is not sent yet.
  let busy = false;
  let dragged = false; // Whether an edit of this drag was sent.

  const pick = h("select", { "aria-label": "Link", class: "grow", onchange: () => choose(pick.value === "" ? null : Number(pick.value)) });
  const slider = h("input", { type: "range", "aria-label": "Weight, as a slider", step: "any" });
  const field = h("input", { type: "number", "aria-label": "Weight", step: "any", size: 8 });
  const remove = h("button", { type: "button", class: "danger", onclick: () => send("remove") }, "Remove");
  const about = h("p", { class: "soft" });
  const source = h("select", { "aria-label": "From", class: "grow" });
  const target = h("select", { "aria-label": "To", class: "grow" });
  const weight = h("input", { type: "number", "aria-label": "Weight of the new link", step: "any", value: "1", size: 6 });
  const add = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    addLink();
  } }, source, "→", target, weight, h("button", {}, "Add"));
  place.append(h("div", { class: "row" }, pick), h("div", { class: "row" }, slider, field, remove), about,
    h("h3", {}, "Add a link"), add);

  slider.addEventListener("input", () => move(Number(slider.value)));
  slider.addEventListener("change", () => {
    move(Number(slider.value));
    if (busy) pending = { value: Number(slider.value), last: true };
    else dragged = false;
  });
  field.addEventListener("change", () => {
    if (field.value !== "") send("weight", { weight: field.valueAsNumber });
  });

  const named = () => ({ to: links[at].to, from: links[at].from });
  const send = (kind, more = {}) => at !== null && edit({ edit: kind, ...named(), ...more });

  /** Sends the weight of a moving slider, one at a time; those between are left out. */
  async function move(value) {
    say(about, "");
    if (at === null || (!dragged && value === flows[at]?.[0])) return;
    if (busy) {
      pending = { value, last: false };
      return;
    }
    busy = true;
    const isMade = await send("weight", { weight: value, ...(dragged ? { continues: true } : {}) });
    busy = false;
    dragged = dragged || isMade;
    const next = pending;
    pending = null;
    if (next) {
      await move(next.value);
      if (next.last) dragged = false;
    }
  }

  async function addLink() {
    const wanted = { to: target.value, from: source.value };
    if (await edit({ edit: "add", ...wanted, weight: weight.value === "" ? null : weight.valueAsNumber })) awaited = wanted;
  }

  let awaited = null; // A link that was added, to be chosen when it comes.

  function choose(index) {
    at = index !== null && index < links.length ? index : null;
    pick.value = at === null ? "" : String(at);
    dragged = false;
    for (const each of [slider, field, remove]) each.disabled = at === null;
    if (at !== null) {
      const size = Math.abs(Number(flows[at][0]));
      const reach = Math.max(2, 2 * size);
      slider.min = String(-reach);
      slider.max = String(reach);
    }
    show();
    chosen(at);
  }

  function show() {
    if (at === null) {
      say(about, links.length ? "Pick a link here or in the drawing." : "There are no links.");
      field.value = "";
      return;
    }
    const [now, flow] = flows[at];
    if (document.activeElement !== field) field.value = String(Number(Number(now).toPrecision(8)));
    if (!busy && !slider.matches(":active")) slider.value = String(now);
    const kind = [links[at].hard ? "fixed in training" : "", links[at].dead ? "carries nothing" : ""].filter(Boolean).join(", ");
    say(about, `${number(flow, 5)} flows${kind ? `; ${kind}` : ""}`);
  }

  return {
    offer(drawing) {
      const before = awaited ?? (at === null ? null : named());
      links = drawing.links;
      flows = links.map(() => [0, 0]);
      pick.replaceChildren(h("option", { value: "" }, `${links.length} links`),
        ...links.map((link, index) => h("option", { value: String(index) }, `${link.to} ← ${link.from}`)));
      offerFields(source, drawing.fields.from);
      offerFields(target, drawing.fields.to);
      const found = before ? links.findIndex((link) => link.to === before.to && link.from === before.from) : -1;
      awaited = null;
      return () => choose(found === -1 ? null : found); // When the numbers are known.
    },
    show(numbers) {
      flows = numbers.flows;
      show();
    },
    choose,
  };
}

function offerFields(select, names) {
  const before = select.value;
  select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
}

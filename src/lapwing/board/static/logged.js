// What a run has logged besides numbers: texts, images, histograms, tables and figures, at the step of a slider.

import { COLORS, drawChart, layout } from "./charts.js";
import { h, say, table } from "./dom.js";
import { number, plain } from "./format.js";
import { ask, query } from "./live.js";

const MOST_ROWS = 100;

/** A panel, and functions: `update` when there may be more, `show` with whether the panel is visible. */
export function loggedPanel(run) {
  const slider = h("input", { type: "range", min: "0", value: "0", "aria-label": "Step", oninput: () => moved() });
  const step = h("output", { class: "soft" });
  const newest = h("button", { type: "button", onclick: () => follow() }, "Newest");
  const tools = h("div", { class: "tools logged-tools" }, h("label", {}, "step ", slider), step, newest);
  const cards = h("div", { class: "logged" });
  const nothing = h("p", { class: "soft" }, "Nothing is logged besides numbers. ", h("code", {}, "run.log(sample=text, picture=lw.Image(pixels))"), " logs more.");
  const element = h("div", {}, tools, cards, nothing);
  const shown = new Map(); // The card of each name and kind.
  let steps = [];
  let isFollowing = true;
  let isVisible = false;
  let isStale = true;

  async function load() {
    isStale = false;
    const names = await ask("logged", { run });
    steps = [...new Set(names.flatMap((each) => each.steps))].sort((a, b) => a - b);
    tools.hidden = !names.length;
    nothing.hidden = names.length > 0;
    const at = steps.indexOf(Number(slider.dataset.step));
    slider.max = String(Math.max(0, steps.length - 1));
    slider.value = String(isFollowing || at < 0 ? steps.length - 1 : at);
    for (const each of names) {
      const key = JSON.stringify([each.name, each.kind]);
      if (!shown.has(key)) {
        shown.set(key, card(run, each));
        cards.append(shown.get(key).element);
      }
      shown.get(key).steps = each.steps;
    }
    moveTo();
  }

  function moved() {
    isFollowing = Number(slider.value) === steps.length - 1;
    moveTo();
  }

  function follow() {
    isFollowing = true;
    slider.value = slider.max;
    moveTo();
  }

  function moveTo() {
    const now = steps[Number(slider.value)];
    if (now === undefined) return;
    slider.dataset.step = String(now);
    slider.setAttribute("aria-valuetext", `step ${now}`);
    say(step, number(now));
    newest.disabled = isFollowing;
    for (const each of shown.values()) each.moveTo(now);
  }

  function refresh() {
    if (isVisible && isStale) load().catch((error) => cards.prepend(h("p", { class: "trouble" }, error.message)));
  }

  return {
    element,
    update: () => ((isStale = true), refresh()),
    show: (visible) => ((isVisible = visible), refresh()),
    redraw: () => shown.forEach((each) => each.redraw()),
  };
}

/** One name: what was logged at a step, or last before it. */
function card(run, { name, kind }) {
  const when = h("span");
  const content = h("div", { class: `logged-${kind}` });
  const element = h("figure", { class: "logged-card" }, h("figcaption", {}, h("b", {}, name), " ", when), content);
  const known = new Map();
  const self = { element, steps: [], moveTo, redraw: () => {} };
  let wanted = null;

  async function moveTo(step) {
    const at = self.steps.findLast((each) => each <= step);
    element.classList.toggle("not-yet", at === undefined);
    say(when, at === undefined ? `first at step ${number(self.steps[0])}` : `${kind} of step ${number(at)}`);
    if (wanted === at || at === undefined) return;
    wanted = at;
    const entry = known.get(at) ?? (await ask("entry", { run, name, kind, step: at }).catch((error) => ({ error })));
    known.set(at, entry);
    if (wanted !== at) return; // The slider has moved on.
    if (entry.error) content.replaceChildren(h("p", { class: "trouble" }, entry.error.message));
    else (SHOW[kind] ?? showOther)(content, entry, run, self);
  }

  return self;
}

const SHOW = { text: showText, image: showImage, figure: showImage, histogram: showHistogram, table: showTable };

function showText(content, { text, length }) {
  const cut = length ? h("p", { class: "soft" }, `The first ${number(String(text).length)} of ${number(length)} characters.`) : null;
  content.replaceChildren(...[h("pre", {}, String(text)), cut].filter(Boolean));
}

function showImage(content, { file, width, height, caption, reduced, name }, run) {
  // A small image is enlarged with its pixels as squares.
  const isSmall = width < 200 && height < 200;
  const image = h("img", { src: `api/media?${query({ run, file })}`, alt: caption ?? name, class: isSmall ? "small" : "" });
  const words = [caption, `${width} × ${height}`, reduced ? `every ${reduced}th pixel` : null].filter(Boolean).join(", ");
  const load = content.querySelector("img") ? image.decode().catch(() => {}) : Promise.resolve();
  // The old one stays until the new one is there, so that nothing flickers.
  load.then(() => content.replaceChildren(image, h("p", { class: "soft" }, words)));
}

function showHistogram(content, entry, run, self) {
  const chart = content.querySelector(".chart") ?? content.appendChild(h("div", { class: "chart histogram" }));
  const { counts, edges, not_finite: bad } = entry;
  if (!Array.isArray(counts) || edges?.length !== counts.length + 1) return;
  const x = counts.map((_, at) => (edges[at] + edges[at + 1]) / 2);
  const width = counts.map((_, at) => edges[at + 1] - edges[at]);
  const trace = { type: "bar", x, y: counts, width, marker: { color: COLORS[0], line: { width: 0 } },
    hovertemplate: "%{y} at %{x:.4g}<extra></extra>" };
  self.redraw = () => {
    const xTitle = bad ? `value (${bad} not finite)` : "value";
    const base = layout({ legend: false, xTitle, more: { bargap: 0 } });
    base.xaxis.rangemode = "normal";
    return drawChart(chart, [trace], base);
  };
  self.redraw();
}

function showTable(content, { content: found, length }) {
  if (!found) return content.replaceChildren(h("p", { class: "soft" }, "The file of this table cannot be read."));
  const rows = found.rows.slice(0, MOST_ROWS).map((row) => row.map(plain));
  const all = length ?? found.rows.length;
  const more = all > rows.length ? h("p", { class: "soft" }, `The first ${rows.length} of ${number(all)} rows.`) : null;
  content.replaceChildren(...[table(found.columns.map(String), rows), more].filter(Boolean));
}

function showOther(content) {
  content.replaceChildren(h("p", { class: "soft" }, "This board cannot show it."));
}

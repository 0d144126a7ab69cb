/** The line beside the timeline: what is selected, what was measured, what is pointed at; and what a screen reader hears. */

import { button, h, type Child } from "../page/dom";
import { exact, percent, time } from "../page/format";
import { copyText } from "../page/copy";
import { extent } from "../timeline/axis";
import type { Stage } from "../timeline/stage";
import type { Measured, State } from "../timeline/state";
import { facts, titleOf } from "./tooltip";

const SAID_AFTER = 400; // ms without change: a reader of the screen is told where a move ended, not each frame of it

export class Details {
  readonly element = h("div", { class: "tl-details" });
  readonly live = h("p", { class: "tl-live", "aria-live": "polite" });
  readonly pointed = h("div", { class: "tl-pointed", role: "status" });
  #timer = 0;

  constructor(
    private readonly stage: Stage,
    private readonly clear: () => void,
  ) {
    stage.state.listen((change) => {
      if (change === "said") this.#show();
      if (change !== "marks") this.#saySoon();
    });
    this.#show();
  }

  get #state(): State {
    return this.stage.state;
  }

  #saySoon(): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#say(), SAID_AFTER);
  }

  #say(): void {
    const { state } = this.stage;
    const { view, layout } = state;
    const words = [`Shows ${extent(view.low, view.high, view.length)}.`];
    const item = layout.items[state.cursor];
    if (item?.kind === "head") words.push(`${item.text}, ${item.isOpen ? "open" : "folded"}.`);
    else if (item?.kind === "row") words.push(`Row ${item.row.meta.label}.`);
    else if (item) words.push(`Curve ${item.curve.meta.label}.`);
    if (state.selected) {
      const told = facts(state, state.selected).map(([label, value]) => `${label} ${value}`);
      words.push(`Selected: ${titleOf(state, state.selected)}, ${told.join(", ")}.`);
    }
    const text = words.join(" ");
    if (this.live.textContent !== text) this.live.textContent = text;
  }

  #show(): void {
    this.pointed.replaceChildren(...this.#pointedParts());
    this.pointed.hidden = this.#state.highlight === null;
    this.element.replaceChildren(...this.#parts());
  }

  #pointedParts(): Child[] {
    const { highlight, current } = this.#state;
    if (!highlight) return [];
    const { spans, n, sum } = highlight;
    const place = n > 1 ? `${current + 1} of ${sum}` : sum;
    const order = n > spans.length ? `, the longest ${spans.length} first` : n > 1 ? ", longest first" : "";
    const parts: Child[] = [h("strong", {}, highlight.title), h("span", {}, `${place}${order}`)];
    if (spans.length > 1) {
      parts.push(button("\u2039 previous", "previous (p)", () => this.#state.step(-1)));
      parts.push(button("next \u203a", "next (n)", () => this.#state.step(1)));
    }
    parts.push(button("clear", "let go (Esc)", this.clear));
    return parts;
  }

  #parts(): Child[] {
    const { state } = this.stage;
    if (state.measured) return this.#measuredParts(state.measured);
    if (!state.selected) return [h("span", { class: "tl-dim" }, "Click an interval to see what it is; ? lists the keys.")];
    const hit = state.selected;
    const { row, i } = hit;
    const lines = facts(state, hit);
    const title = titleOf(state, hit);
    const text = [title, ...lines.map(([label, value]) => `${label} ${value}`), exact(row.end[i] - row.start[i])].join("\n");
    const parts: Child[] = [h("strong", { class: "tl-name" }, title)];
    for (const [label, value] of lines) {
      const exactly = label === "duration" ? { title: exact(row.end[i] - row.start[i]) } : {};
      parts.push(h("span", exactly, h("span", { class: "tl-dim" }, `${label} `), value));
    }
    parts.push(button("copy", "copy this", () => void copyText(text)));
    parts.push(button("zoom to it", "zoom to it (f)", () => state.focusSelected()));
    if (row.name[i] >= 0) {
      const rank = encodeURIComponent(state.data.linkOf(row.rank));
      parts.push(h("a", { href: `#name=${row.name[i]}&rank=${rank}` }, "all of this name"));
    }
    return parts;
  }

  #measuredParts(measured: Measured): Child[] {
    const length = measured.high - measured.low;
    const parts: Child[] = [h("strong", { title: exact(length) }, time(length)), h("span", {}, exact(length))];
    const budget = this.#state.budgetWithin(measured);
    if (budget && measured.rank.title) parts.push(h("span", { class: "tl-dim" }, measured.rank.title));
    for (const [category, ns] of budget ?? []) {
      const box = h("span", { class: "tl-box" });
      box.style.background = this.stage.palette.paints[category].css;
      parts.push(h("span", {}, box, `${this.#state.data.label(category)} ${time(ns)} (${percent(ns / length)})`));
    }
    parts.push(button("zoom to it", "show this stretch", () => this.#state.show(measured.low, measured.high)));
    return parts;
  }
}

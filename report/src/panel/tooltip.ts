/** The note beside the pointer: name, duration, start, category, rank; text only. */

import { h } from "../page/dom";
import { time } from "../page/format";
import { moment } from "../timeline/axis";
import { amount } from "../timeline/curves";
import type { PointerInput } from "../timeline/pointer";
import type { Stage } from "../timeline/stage";
import type { Hit, State } from "../timeline/state";

/** The lines that describe an interval: label and value. */
export function facts(state: State, hit: Hit): [string, string][] {
  const { row, i } = hit;
  const { rank } = row;
  const length = row.end[i] - row.start[i];
  const out: [string, string][] = [
    ["duration", time(length)],
    ["start", moment(row.start[i], Math.max(1, Math.min(1e6, length / 100)))],
    ["kind", state.data.label(row.category[i])],
    ["row", row.meta.group ? `${row.meta.group}, ${row.meta.label}` : row.meta.label],
  ];
  if (rank.title) out.push(["rank", rank.title]);
  if (row.meta.is_reduced) out.push(["drawn", "short intervals of this row are joined"]);
  return out;
}

export function titleOf(state: State, hit: Hit): string {
  return hit.row.nameOf(hit.i) || state.data.label(hit.row.category[hit.i]);
}

const ROOM = 14;

export class Tooltip {
  readonly element = h("div", { class: "tl-tip", "aria-hidden": "true", hidden: "" });
  #shown: string | null = null;

  constructor(private readonly stage: Stage) {}

  show(pointer: PointerInput): void {
    const at = pointer.mouse;
    const lines = at ? this.#lines(at.y) : null;
    this.element.hidden = lines === null;
    if (!at || !lines) return;
    const key = JSON.stringify(lines);
    if (key !== this.#shown) {
      this.#shown = key;
      const [title, rest] = lines;
      const rows = rest.map(([label, value]) => h("div", {}, h("span", { class: "tl-dim" }, `${label} `), value));
      this.element.replaceChildren(h("strong", {}, title), ...rows);
    }
    const { offsetWidth, offsetHeight } = this.element;
    const x = at.x + ROOM + offsetWidth > this.stage.width ? at.x - ROOM - offsetWidth : at.x + ROOM;
    const y = at.y + ROOM + offsetHeight > this.stage.height ? at.y - ROOM - offsetHeight : at.y + ROOM;
    this.element.style.transform = `translate(${Math.max(0, Math.round(x))}px, ${Math.round(y)}px)`;
  }

  #lines(y: number): [string, [string, string][]] | null {
    const { state } = this.stage;
    if (state.hovered) return [titleOf(state, state.hovered), facts(state, state.hovered)];
    const item = this.stage.itemAt(y);
    if (item?.kind !== "curve" || state.pointer === null) return null;
    const { curve } = item;
    const i = curve.holding(state.pointer - curve.rank.offset);
    if (i < 0) return null;
    return [curve.meta.label, [["now", amount(curve.value[i], curve.meta.unit)], ["peak", amount(curve.most, curve.meta.unit)]]];
  }
}

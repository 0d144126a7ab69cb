/** What the keys do: some wherever nobody types, the rest where the timeline has the focus. */

import { isTyping, on } from "../page/dom";
import type { Stage } from "./stage";

export const KEYS: [string, string][] = [
  ["A D, \u2190 \u2192", "move left, right"],
  ["W S, + \u2212", "zoom in, out about the pointer or the middle"],
  ["0", "show all"],
  ["\u2191 \u2193", "choose a row"],
  ["Enter", "fold or open the group; select the interval in the middle of the row"],
  ["[ ]", "select the interval before, after"],
  ["f", "zoom to the selected interval"],
  ["n p", "next, previous interval of what a link or search points at"],
  ["m", "measure what is on screen (or drag with shift)"],
  ["/", "search names"],
  ["Esc", "let go of selection, search and links"],
  ["?", "this list"],
];

export interface Acts {
  search(): void;
  help(): void;
  clear(): void;
}

const PAN = 0.15;
const ZOOM = 0.7;

export class Keys {
  constructor(
    private readonly stage: Stage,
    private readonly acts: Acts,
  ) {
    on(document, "keydown", (event: KeyboardEvent) => this.#anywhere(event));
    on(stage.element, "keydown", (event: KeyboardEvent) => this.#here(event));
  }

  #anywhere(event: KeyboardEvent): void {
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const { state } = this.stage;
    const acts: Record<string, () => void> = {
      n: () => state.step(1),
      p: () => state.step(-1),
      "/": () => this.acts.search(),
      "?": () => this.acts.help(),
      Escape: () => this.acts.clear(),
    };
    if (!Object.hasOwn(acts, event.key) || (/^[np]$/.test(event.key) && !state.highlight)) return;
    acts[event.key]();
    event.preventDefault();
  }

  #here(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.#byPlace(event.code) ?? this.#byMeaning(event.key);
    if (!act) return;
    act();
    event.preventDefault();
  }

  #pan(share: number): void {
    this.stage.pan(share * this.stage.state.view.width);
  }

  #zoom(factor: number): void {
    const { state } = this.stage;
    state.zoom(factor, state.pointer ?? undefined);
  }

  /** WASD by where the key lies, so that they are neighbours on every keyboard. */
  #byPlace(code: string): (() => void) | undefined {
    return {
      KeyA: () => this.#pan(-PAN),
      KeyD: () => this.#pan(PAN),
      KeyW: () => this.#zoom(ZOOM),
      KeyS: () => this.#zoom(1 / ZOOM),
      ArrowLeft: () => this.#pan(-PAN),
      ArrowRight: () => this.#pan(PAN),
      ArrowUp: () => this.#choose(-1),
      ArrowDown: () => this.#choose(1),
      Enter: () => this.#enter(),
      NumpadEnter: () => this.#enter(),
    }[code];
  }

  #byMeaning(key: string): (() => void) | undefined {
    const { state } = this.stage;
    return {
      "+": () => this.#zoom(ZOOM),
      "=": () => this.#zoom(ZOOM),
      "-": () => this.#zoom(1 / ZOOM),
      "0": () => state.fit(),
      f: () => state.focusSelected(),
      m: () => {
        const rank = state.selected?.row.rank ?? state.data.ranks[0];
        state.measured = { rank, low: Math.round(state.view.low), high: Math.round(state.view.high) };
        state.changed("marks");
        state.changed("said");
      },
      "[": () => this.#neighbour(-1),
      "]": () => this.#neighbour(1),
    }[key];
  }

  #choose(by: number): void {
    const { state } = this.stage;
    const { items } = state.layout;
    state.cursor = Math.max(0, Math.min(items.length - 1, state.cursor + by));
    if (items[state.cursor]) this.stage.reveal(items[state.cursor]);
    state.changed("marks");
    state.changed("said");
  }

  #enter(): void {
    const { state } = this.stage;
    const item = state.layout.items[state.cursor];
    if (!item) return;
    if (item.kind === "head") {
      state.fold(item.id, !item.isOpen);
      state.changed("said");
    } else if (item.kind === "row" && item.row.n > 0) {
      const middle = (state.view.low + state.view.high) / 2 - item.row.rank.offset;
      state.select({ row: item.row, i: item.row.at(middle, Infinity) });
    }
  }

  #neighbour(by: number): void {
    const { state } = this.stage;
    if (!state.selected) return this.#enter();
    const { row, i } = state.selected;
    const next = Math.max(0, Math.min(row.n - 1, i + by));
    state.select({ row, i: next });
    const [low, high] = [row.start[next] + row.rank.offset, row.end[next] + row.rank.offset];
    if (low < state.view.low || high > state.view.high) {
      const half = state.view.width / 2;
      state.show((low + high) / 2 - half, (low + high) / 2 + half);
    }
  }
}

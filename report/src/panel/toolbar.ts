/** Search, zoom and help over the timeline. */

import { button, h, on } from "../page/dom";
import { ofSearch } from "../links/highlight";
import { KEYS } from "../timeline/keys";
import type { State } from "../timeline/state";

const TYPED = 150; // ms after the last letter before names are compared

export class Toolbar {
  readonly element: HTMLElement;
  readonly help: HTMLDialogElement;
  readonly search: HTMLInputElement;
  readonly #found = h("span", { class: "tl-found", role: "status" });
  #timer = 0;
  #sought = "";
  /** Whether one of what was found is on screen by Enter. */
  #isShown = false;

  constructor(private readonly state: State) {
    this.search = h("input", { type: "search", placeholder: "search names ( / )", "aria-label": "search names", spellcheck: "false", autocomplete: "off" });
    on(this.search, "input", () => {
      clearTimeout(this.#timer);
      this.#timer = window.setTimeout(() => this.#seek(), TYPED);
    });
    on(this.search, "keydown", (event: KeyboardEvent) => this.#key(event));
    this.help = this.#makeHelp();
    this.element = h(
      "div",
      { class: "tl-bar", role: "toolbar", "aria-label": "timeline" },
      this.search,
      this.#found,
      h("span", { class: "tl-buttons" }, ...this.#buttons()),
    );
  }

  #buttons(): HTMLElement[] {
    return [
      button("\u2212", "zoom out (-)", () => this.state.zoom(1 / 0.6)),
      button("+", "zoom in (+)", () => this.state.zoom(0.6)),
      button("all", "show all (0)", () => this.state.fit()),
      button("?", "keys (?)", () => this.showHelp()),
    ];
  }

  showHelp(): void {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }

  /** Empties the box without touching what a link points at. */
  reset(): void {
    clearTimeout(this.#timer);
    this.search.value = "";
    this.#sought = "";
    this.#found.textContent = "";
  }

  #key(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.reset();
      this.state.point(null);
      this.search.blur();
      event.preventDefault();
    }
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(this.#timer);
    if (this.search.value.trim() !== this.#sought) this.#seek();
    const span = this.#isPointing ? this.state.span : null;
    if (!span) return;
    if (this.#isShown) this.state.step(event.shiftKey ? -1 : 1);
    else this.state.showSpan(span);
    this.#isShown = true;
  }

  get #isPointing(): boolean {
    return this.#sought !== "" && this.state.highlight !== null;
  }

  #seek(): void {
    const text = this.search.value.trim();
    if (text === this.#sought) return;
    this.#sought = text;
    this.#isShown = false;
    const found = text === "" ? null : ofSearch(this.state.data, text);
    this.#found.textContent = text !== "" && !found ? "no name holds this" : "";
    this.state.point(found, false);
  }

  #makeHelp(): HTMLDialogElement {
    const rows = KEYS.map(([key, what]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, what)));
    const close = button("close", "close (Esc)", () => this.help.close());
    const mouse = h("p", {}, "Drag moves, the wheel zooms after a click (with ctrl always), a double click zooms to an interval.");
    return h("dialog", { class: "tl-help", "aria-label": "keys" }, h("table", {}, h("tbody", {}, ...rows)), mouse, close);
  }
}

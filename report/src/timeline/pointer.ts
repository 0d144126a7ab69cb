/** What mouse, pen and fingers do: drag pans, wheel zooms, shift and drag measures, a click selects or folds. */

import { on } from "../page/dom";
import { AXIS_HEIGHT, type Stage } from "./stage";
import type { Head } from "./layout";
import type { Hit } from "./state";

/** Pixels that a pointer moves before a press counts as a drag. */
const STILL = 4;
/** How near a pointer must come to an interval thinner than a pixel. */
const SLACK = 3;
/** How much of a head can be clicked where it lies over its row. */
const HEAD_WIDTH = 120;
const ZOOM_SPEED = 0.0022;

interface Press {
  x: number;
  y: number;
  low: number;
  scroll: number;
  isMeasuring: boolean;
  hasMoved: boolean;
}

export class PointerInput {
  readonly #fingers = new Map<number, { x: number; y: number }>();
  #press: Press | null = null;
  /** Where the mouse last was over the stage, for the tooltip; null where it is elsewhere. */
  mouse: { x: number; y: number } | null = null;

  constructor(
    private readonly stage: Stage,
    private readonly told: () => void,
  ) {
    const { top, element } = stage;
    on(top, "pointerdown", (event: PointerEvent) => this.#down(event));
    on(top, "pointermove", (event: PointerEvent) => this.#move(event));
    on(top, "pointerup", (event: PointerEvent) => this.#up(event));
    on(top, "pointercancel", (event: PointerEvent) => this.#forget(event));
    on(top, "pointerleave", () => this.#leave());
    on(top, "dblclick", (event: MouseEvent) => this.#double(event));
    on(element, "wheel", (event: WheelEvent) => this.#wheel(event), { passive: false });
  }

  #place(event: MouseEvent): { x: number; y: number } {
    const box = this.stage.top.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** The interval under a place on the canvas. */
  #hitAt(x: number, y: number): Hit | null {
    const item = this.stage.itemAt(y);
    if (!item || item.kind === "curve" || !item.row || x < this.stage.gutter) return null;
    const t = this.stage.time(x) - item.row.rank.offset;
    const i = item.row.at(t, SLACK * this.stage.nsPerPixel);
    return i < 0 ? null : { row: item.row, i };
  }

  /** The head under a place: beside its intervals where it has some. */
  #headAt(x: number, y: number): Head | null {
    const item = this.stage.itemAt(y);
    return item?.kind === "head" && (x < Math.max(this.stage.gutter, HEAD_WIDTH) || !item.row) ? item : null;
  }

  #down(event: PointerEvent): void {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    const { x, y } = this.#place(event);
    this.#fingers.set(event.pointerId, { x, y });
    this.stage.top.setPointerCapture(event.pointerId);
    this.stage.element.focus({ preventScroll: true });
    const { view } = this.stage.state;
    const isMeasuring = event.shiftKey || y < AXIS_HEIGHT;
    this.#press =
      this.#fingers.size > 1
        ? null
        : { x, y, low: view.low, scroll: this.stage.element.scrollTop, isMeasuring, hasMoved: false };
  }

  #move(event: PointerEvent): void {
    const at = this.#place(event);
    const before = this.#fingers.get(event.pointerId);
    if (before && this.#fingers.size === 2) this.#pinch(event.pointerId, at);
    if (before) this.#fingers.set(event.pointerId, at);
    if (this.#press) this.#drag(at);
    else if (!before && event.pointerType !== "touch") this.#hover(at);
  }

  #hover(at: { x: number; y: number }): void {
    const { state } = this.stage;
    this.mouse = at;
    state.hovered = this.#hitAt(at.x, at.y);
    state.pointer = at.x >= this.stage.gutter ? this.stage.time(at.x) : null;
    this.stage.top.style.cursor = state.hovered || this.#headAt(at.x, at.y) ? "pointer" : "";
    state.changed("marks");
    this.told();
  }

  #drag({ x, y }: { x: number; y: number }): void {
    const { stage } = this;
    const press = this.#press;
    if (!press) return;
    if (!press.hasMoved && Math.hypot(x - press.x, y - press.y) < STILL) return;
    press.hasMoved = true;
    this.#quiet();
    if (press.isMeasuring) {
      const [a, b] = [stage.time(press.x), stage.time(x)];
      this.#measure(Math.min(a, b), Math.max(a, b), press.y);
      return;
    }
    stage.element.scrollTop = press.scroll - (y - press.y);
    stage.top.style.cursor = "grabbing";
    stage.pan(press.low - (x - press.x) * stage.nsPerPixel - stage.state.view.low);
  }

  #measure(low: number, high: number, y: number): void {
    const { state } = this.stage;
    const item = this.stage.itemAt(y);
    const row = item && item.kind !== "curve" ? item.row : null;
    const rank = item?.kind === "curve" ? item.curve.rank : (row?.rank ?? state.data.ranks[0]);
    const [from, to] = [Math.max(0, low), Math.min(state.view.length, high)];
    state.measured = { rank, low: Math.round(from), high: Math.round(to) };
    state.changed("marks");
    state.changed("said");
  }

  #pinch(id: number, at: { x: number; y: number }): void {
    const other = [...this.#fingers].find(([one]) => one !== id)?.[1];
    const before = this.#fingers.get(id);
    if (!other || !before) return;
    const { view } = this.stage.state;
    const was = Math.max(10, Math.abs(before.x - other.x));
    const is = Math.max(10, Math.abs(at.x - other.x));
    view.zoom(this.stage.time((before.x + other.x) / 2), was / is);
    view.pan(-((at.x - before.x) / 2) * this.stage.nsPerPixel);
    this.stage.state.changed("look");
  }

  #up(event: PointerEvent): void {
    const press = this.#press;
    this.#forget(event);
    if (!press || press.hasMoved) return;
    const { state } = this.stage;
    const item = this.stage.itemAt(press.y);
    if (item) state.cursor = state.layout.items.indexOf(item);
    const head = this.#headAt(press.x, press.y);
    if (head) state.fold(head.id, !head.isOpen);
    else state.select(this.#hitAt(press.x, press.y));
  }

  #forget(event: PointerEvent): void {
    this.#fingers.delete(event.pointerId);
    this.#press = null;
    this.stage.top.style.cursor = "";
  }

  #leave(): void {
    if (!this.#press) this.#quiet();
  }

  /** Nothing is hovered. */
  #quiet(): void {
    const { state } = this.stage;
    this.mouse = null;
    if (state.hovered === null && state.pointer === null) return;
    state.hovered = null;
    state.pointer = null;
    state.changed("marks");
    this.told();
  }

  #double(event: MouseEvent): void {
    const { x, y } = this.#place(event);
    const hit = this.#hitAt(x, y);
    if (!hit) return;
    this.stage.state.select(hit);
    this.stage.state.focusSelected();
  }

  /** Zooms where the timeline has the focus, or with ctrl; else the page scrolls. Sideways always pans. */
  #wheel(event: WheelEvent): void {
    const { stage } = this;
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const hasFocus = document.activeElement === stage.element;
    if (!isSideways && !event.ctrlKey && !event.metaKey && !hasFocus) return;
    event.preventDefault();
    if (isSideways) {
      stage.pan((event.deltaX || event.deltaY) * unit * stage.nsPerPixel);
    } else {
      // A pinch on a touchpad arrives as small steps with ctrl.
      const speed = event.ctrlKey && event.deltaMode === 0 && Math.abs(event.deltaY) < 50 ? ZOOM_SPEED * 4 : ZOOM_SPEED;
      const factor = Math.max(0.2, Math.min(5, Math.exp(event.deltaY * unit * speed)));
      const { x } = this.#place(event);
      stage.state.zoom(factor, stage.time(Math.max(stage.gutter, x)));
    }
  }
}

/** The canvases: rows below, marks above; drawn in an animation frame, only when something changed. */

import { h, on } from "../page/dom";
import { ticks, type Tick } from "./axis";
import { drawPlotText } from "./curves";
import { drawHead, drawNames, drawRowLabel, FONT } from "./names";
import { drawMarks } from "./marks";
import { paletteOf, type Palette } from "./palette";
import { Sheet } from "./sheet";
import type { Item } from "./layout";
import type { State } from "./state";
import { Labels } from "./text";

export const AXIS_HEIGHT = 22;
const GUTTER = 148;
const NARROW = 620;
const LABEL_ABOVE = 13;
const ROOM_ABOVE_CURVE = 6;
const MOST_HEIGHT = 0.72; // of the window; more rows scroll

export class Stage {
  /** What scrolls: as high as all rows, the canvases stick to its top. */
  readonly element: HTMLElement;
  readonly top: HTMLCanvasElement;
  palette: Palette;
  /** Size of the canvases in CSS pixels. */
  width = 0;
  height = 0;
  gutter = GUTTER;
  readonly labels: Labels;
  readonly #base: HTMLCanvasElement;
  readonly #space: HTMLElement;
  readonly #context: CanvasRenderingContext2D;
  readonly #over: CanvasRenderingContext2D;
  #sheet = new Sheet(1, 1);
  /** Pixels of the screen to one of CSS. */
  ratio = 1;
  #asked = 0;
  #isLookStale = true;
  #isBare = false;
  /** Called before each drawing. */
  readonly beforeDraw: (() => void)[] = [];

  constructor(readonly state: State) {
    this.#base = h("canvas", { "aria-hidden": "true" });
    this.top = h("canvas", { class: "tl-top", "aria-hidden": "true" });
    const sticky = h("div", { class: "tl-sticky" }, this.#base, this.top);
    this.#space = h("div", { class: "tl-space" }, sticky);
    this.element = h("div", { class: "tl-stage", tabindex: "0", role: "application" }, this.#space);
    this.#context = this.#base.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.#over = this.top.getContext("2d") as CanvasRenderingContext2D;
    this.#context.font = FONT;
    this.labels = new Labels(this.#context);
    this.palette = paletteOf(state.data.meta.categories, this.element);
    state.listen((change) => {
      if (change !== "said") this.ask(change === "look");
    });
    on(this.element, "scroll", () => this.ask(true), { passive: true });
  }

  /** Begins to follow the size of its place, the theme and the screen. */
  start(): void {
    new ResizeObserver(() => this.#resize()).observe(this.element);
    this.retheme();
    this.#resize();
  }

  retheme(): void {
    this.palette = paletteOf(this.state.data.meta.categories, this.element);
    this.ask(true);
  }

  ask(isLook: boolean): void {
    this.#isLookStale ||= isLook;
    if (this.#asked === 0) this.#asked = requestAnimationFrame(() => this.#draw());
  }

  get nsPerPixel(): number {
    return this.state.view.width / Math.max(1, this.width - this.gutter);
  }

  /** Moves the view by whole pixels of the screen, so that what is drawn can move with it. */
  pan(ns: number): void {
    const grain = this.state.view.width / Math.max(1, this.#sheet.width - Math.round(this.gutter * this.ratio));
    this.state.view.pan(Math.round(ns / grain) * grain);
    this.state.changed("look");
  }

  /** Pixels from the left of a moment on the page's clock. */
  x(t: number): number {
    return this.gutter + (t - this.state.view.low) / this.nsPerPixel;
  }

  time(x: number): number {
    return this.state.view.low + (x - this.gutter) * this.nsPerPixel;
  }

  /** The item under a height on the canvas. */
  itemAt(y: number): Item | null {
    return y < AXIS_HEIGHT ? null : this.state.layout.at(y - AXIS_HEIGHT + this.element.scrollTop);
  }

  /** Top of an item on the canvas. */
  y(item: Item): number {
    return AXIS_HEIGHT + item.y - this.element.scrollTop;
  }

  /** Scrolls so that the item is on screen. */
  reveal(item: Item): void {
    const [low, high] = [item.y, item.y + item.height - (this.height - AXIS_HEIGHT)];
    if (this.element.scrollTop > low) this.element.scrollTop = low;
    else if (this.element.scrollTop < high) this.element.scrollTop = high;
  }

  #resize(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const isNarrow = width < NARROW;
    const gutter = isNarrow ? 0 : GUTTER;
    if (width !== this.width || gutter !== this.gutter) {
      this.width = width;
      this.gutter = gutter;
      this.state.place(isNarrow ? LABEL_ABOVE : 0);
    }
    this.ask(true);
  }

  /** Fits the canvases to the rows and the screen's pixels. */
  #fit(): void {
    const whole = this.state.layout.height + AXIS_HEIGHT;
    const height = Math.round(Math.min(whole, Math.max(200, innerHeight * MOST_HEIGHT)));
    const ratio = devicePixelRatio || 1;
    const [w, hh] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    this.element.style.height = `${height + 2}px`;
    this.#space.style.height = `${whole}px`;
    this.height = height;
    if (this.#base.width === w && this.#base.height === hh && this.ratio === ratio) return;
    this.ratio = ratio;
    for (const canvas of [this.#base, this.top]) {
      canvas.width = w;
      canvas.height = hh;
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${height}px`;
    }
    this.#sheet = new Sheet(w, hh);
  }

  #draw(): void {
    this.#asked = 0;
    for (const act of this.beforeDraw) act();
    const isStale = this.#isLookStale;
    this.#isLookStale = false;
    if (isStale) {
      this.#fit();
      this.#drawLook();
    }
    // A canvas that is left alone need not be shown anew.
    if (this.state.isBare && this.#isBare) return;
    this.#isBare = this.state.isBare;
    this.#over.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.#over.clearRect(0, 0, this.width, this.height);
    drawMarks(this.#over, this);
  }

  #visible(): Item[] {
    const low = this.element.scrollTop;
    const high = low + this.height - AXIS_HEIGHT;
    return this.state.layout.items.filter((item) => item.y + item.height > low && item.y < high);
  }

  #drawLook(): void {
    const items = this.#visible();
    const marks = ticks(this.state.view.low, this.state.view.high, this.width - this.gutter);
    this.#sheet.paint(this, items, marks);
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.putImageData(this.#sheet.image, 0, 0);
    this.#context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.#context.font = FONT;
    this.#context.textBaseline = "middle";
    for (const item of items) {
      if (item.kind !== "curve" && item.row) drawNames(this.#context, this, item, item.row);
      if (item.kind === "curve") drawPlotText(this.#context, this, item, item.curve);
      else if (item.kind === "head") drawHead(this.#context, this, item);
      else drawRowLabel(this.#context, this, item, item.row);
    }
    this.#drawAxis(marks);
  }

  /** Where the bars of an item lie on the canvas, in CSS pixels: top and height. */
  bars(item: Item): [number, number] {
    const above = item.kind !== "head" && this.gutter === 0 ? LABEL_ABOVE : 0;
    const room = item.kind === "curve" ? above + ROOM_ABOVE_CURVE : above + 1;
    return [this.y(item) + room, item.height - room - 2];
  }

  #drawAxis(marks: Tick[]): void {
    const { palette } = this;
    const context = this.#context;
    context.fillStyle = palette.groundCss;
    context.fillRect(0, 0, this.width, AXIS_HEIGHT);
    context.fillStyle = palette.line;
    context.fillRect(0, AXIS_HEIGHT - 1, this.width, 1);
    context.textAlign = "left";
    for (const { t, label } of marks) {
      const x = Math.round(this.x(t));
      context.fillStyle = palette.line;
      context.fillRect(x, AXIS_HEIGHT - 7, 1, 6);
      context.fillStyle = palette.muted;
      context.fillText(label, x + 3, AXIS_HEIGHT / 2 - 1);
    }
  }
}

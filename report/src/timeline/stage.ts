/** The canvases: rows below, marks above; drawn in an animation frame, only when something changed. */

import { h } from "../page/dom";
import { ticks, type Tick } from "./axis";
import { drawPlot } from "./curves";
import { drawHead, drawNames, drawRowLabel, FONT } from "./names";
import { drawMarks } from "./marks";
import { paintGrid, paintRow, paintSome, type Lane, type Picture } from "./paint";
import { paletteOf, packed, type Palette } from "./palette";
import type { Item } from "./layout";
import type { Row } from "../data/row";
import type { State } from "./state";
import { Labels } from "./text";

export const AXIS_HEIGHT = 22;
const GUTTER = 148;
const NARROW = 620;
const LABEL_ABOVE = 13;
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
  #picture: (Picture & { image: ImageData }) | null = null;
  #ratio = 1;
  #asked = 0;
  #isLookStale = true;
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
    this.element.addEventListener("scroll", () => this.ask(true), { passive: true });
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
    if (this.#base.width === w && this.#base.height === hh && this.#ratio === ratio) return;
    this.#ratio = ratio;
    for (const canvas of [this.#base, this.top]) {
      canvas.width = w;
      canvas.height = hh;
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${height}px`;
    }
    const image = new ImageData(Math.max(1, w), Math.max(1, hh));
    this.#picture = { image, pixels: new Uint32Array(image.data.buffer), width: w, height: hh };
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
    this.#over.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    this.#over.clearRect(0, 0, this.width, this.height);
    drawMarks(this.#over, this);
  }

  #visible(): Item[] {
    const low = this.element.scrollTop;
    const high = low + this.height - AXIS_HEIGHT;
    return this.state.layout.items.filter((item) => item.y + item.height > low && item.y < high);
  }

  #drawLook(): void {
    if (!this.#picture) return;
    const items = this.#visible();
    this.#picture.pixels.fill(packed(this.palette.ground));
    const marks = ticks(this.state.view.low, this.state.view.high, this.width - this.gutter);
    paintGrid(this.#picture, marks.map(({ t }) => Math.round(this.x(t) * this.#ratio)), this.palette.grid);
    const sparse = new Map<Item, [number, number]>();
    for (const item of items) {
      if (item.kind === "curve" || !item.row) continue;
      const shown = this.#paint(item, item.row, this.#picture);
      if (shown) sparse.set(item, shown);
    }
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.putImageData(this.#picture.image, 0, 0);
    this.#context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    this.#context.font = FONT;
    this.#context.textBaseline = "middle";
    for (const [item, [from, to]] of sparse) drawNames(this.#context, this, item, from, to);
    for (const item of items) {
      if (item.kind === "curve") drawPlot(this.#context, this, item, item.curve);
      else if (item.kind === "head") drawHead(this.#context, this, item);
      else drawRowLabel(this.#context, this, item, item.row);
    }
    this.#drawAxis(marks);
  }

  /** Where the bars of an item lie on the canvas, in CSS pixels: top and height. */
  bars(item: Item): [number, number] {
    const above = item.kind === "row" && this.gutter === 0 ? LABEL_ABOVE : 0;
    return [this.y(item) + above + 1, item.height - above - 3];
  }

  #paint(item: Item, row: Row, picture: Picture): [number, number] | null {
    const [top, tall] = this.bars(item);
    const x = Math.round(this.gutter * this.#ratio);
    // A row cut by an edge is drawn shorter: pixels outside the picture are none.
    const y = Math.max(0, Math.round(top * this.#ratio));
    const bottom = Math.min(picture.height, Math.round((top + tall) * this.#ratio));
    if (bottom <= y) return null;
    const width = picture.width - x;
    const nsPerPixel = this.state.view.width / Math.max(1, width);
    const low = this.state.view.low - row.rank.offset;
    const lane: Lane = { x, y, width, height: bottom - y, low, nsPerPixel };
    const { highlight } = this.state;
    const isFaded = highlight?.isFading ?? false;
    const shown = paintRow(picture, lane, row, this.palette.paints, isFaded);
    const which = highlight?.matches?.get(row);
    if (which) paintSome(picture, lane, row, which, this.palette.paints);
    return shown;
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

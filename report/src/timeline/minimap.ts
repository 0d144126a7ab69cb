/** The whole time in a strip: drag inside the window moves it, outside draws another. */

import { h, on } from "../page/dom";
import { lookAt, paintRow, type Lane, type Picture } from "./paint";
import { packed } from "./palette";
import type { Stage } from "./stage";
import type { Row } from "../data/row";

const HEIGHT = 26;
const GRIP = 4;

/** The rows that stand for the whole: budgets, else steps, else the first of each rank. */
function rowsOf(stage: Stage): Row[] {
  const rows = stage.state.data.ranks.map(
    (rank) => rank.rows.find((row) => row.meta.role === "budget") ?? rank.rows.find((row) => row.n > 0),
  );
  return rows.filter((row) => row !== undefined).slice(0, HEIGHT);
}

export class Minimap {
  readonly canvas = h("canvas", { class: "tl-map", "aria-hidden": "true" });
  #still: HTMLCanvasElement | null = null;
  #drag: { from: number; low: number; isMoving: boolean } | null = null;
  #seen = "";

  constructor(private readonly stage: Stage) {
    on(this.canvas, "pointerdown", (event: PointerEvent) => this.#down(event));
    on(this.canvas, "pointermove", (event: PointerEvent) => this.#move(event));
    on(this.canvas, "pointerup", () => (this.#drag = null));
    on(this.canvas, "pointercancel", () => (this.#drag = null));
    stage.beforeDraw.push(() => this.#draw());
  }

  get #left(): number {
    return this.stage.gutter;
  }

  #time(event: PointerEvent): number {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - this.#left;
    return (x / Math.max(1, this.stage.width - this.#left)) * this.stage.state.view.length;
  }

  #down(event: PointerEvent): void {
    const t = this.#time(event);
    const { view } = this.stage.state;
    const isMoving = !view.isWhole && t >= view.low && t <= view.high;
    this.#drag = { from: t, low: view.low, isMoving };
    this.canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  #move(event: PointerEvent): void {
    if (!this.#drag) return;
    const t = this.#time(event);
    const { view } = this.stage.state;
    if (this.#drag.isMoving) view.pan(this.#drag.low + t - this.#drag.from - view.low);
    else view.set(Math.min(t, this.#drag.from), Math.max(t, this.#drag.from));
    this.stage.state.changed("look");
  }

  /** The rows, drawn once for a width and a palette. */
  #drawStill(ratio: number): HTMLCanvasElement {
    const { stage } = this;
    const [width, height] = [Math.round(stage.width * ratio), Math.round(HEIGHT * ratio)];
    const image = new ImageData(Math.max(1, width), height);
    const picture: Picture = { pixels: new Uint32Array(image.data.buffer), width, height };
    picture.pixels.fill(packed(stage.palette.ground));
    const rows = rowsOf(stage);
    const x = Math.round(this.#left * ratio);
    const tall = (height - 6 * ratio) / Math.max(1, rows.length);
    rows.forEach((row, i) => {
      const y = Math.round(3 * ratio + i * tall);
      const bottom = Math.max(y + 1, Math.round(3 * ratio + (i + 1) * tall));
      const nsPerPixel = stage.state.view.length / Math.max(1, width - x);
      const lane: Lane = { x, y, width: width - x, height: Math.min(height, bottom) - y, low: -row.rank.offset, nsPerPixel };
      paintRow(picture, lane, row, lookAt(row, lane).isSparse, stage.palette.paints, false);
    });
    const canvas = h("canvas", {});
    canvas.width = image.width;
    canvas.height = height;
    canvas.getContext("2d")?.putImageData(image, 0, 0);
    return canvas;
  }

  #draw(): void {
    const { stage, canvas } = this;
    if (stage.width === 0) return;
    const ratio = devicePixelRatio || 1;
    const seen = [stage.width, stage.gutter, ratio, stage.palette.groundCss, stage.palette.paints.map((p) => p.fill)].join();
    if (seen !== this.#seen || !this.#still) {
      this.#seen = seen;
      this.#still = this.#drawStill(ratio);
      canvas.width = this.#still.width;
      canvas.height = this.#still.height;
      canvas.style.width = `${stage.width}px`;
      canvas.style.height = `${HEIGHT}px`;
    }
    const context = canvas.getContext("2d");
    if (!context) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.#still, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { view } = stage.state;
    const scale = (stage.width - this.#left) / view.length;
    const [x0, x1] = [this.#left + view.low * scale, this.#left + view.high * scale];
    context.fillStyle = stage.palette.groundCss;
    context.globalAlpha = 0.65;
    context.fillRect(this.#left, 0, x0 - this.#left, HEIGHT);
    context.fillRect(x1, 0, stage.width - x1, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = stage.palette.text;
    context.lineWidth = 1.5;
    const width = Math.max(GRIP, x1 - x0);
    context.strokeRect(Math.min(x0, stage.width - width) + 0.75, 0.75, width - 1.5, HEIGHT - 1.5);
  }
}

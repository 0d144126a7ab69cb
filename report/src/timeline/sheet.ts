/** The picture of all rows on screen; while the view pans, only the columns that come into sight are painted. */

import type { Tick } from "./axis";
import { paintPlot } from "./curves";
import type { Item, Layout } from "./layout";
import { lookAt, paintGrid, paintRow, paintSome, type Lane, type Picture } from "./paint";
import { packed, type Palette } from "./palette";
import type { Highlight } from "../links/highlight";
import type { Stage } from "./stage";

/** What the picture shows: where only `low` differs, it can be moved. */
interface Shown {
  low: number;
  nsPerPixel: number;
  scroll: number;
  gutter: number;
  layout: Layout;
  palette: Palette;
  highlight: Highlight | null;
  /** Whether each row is drawn interval by interval. */
  sparse: boolean[];
}

const WHOLE = 1e-3; // pixels: what a move may miss a whole number by

export class Sheet implements Picture {
  readonly image: ImageData;
  readonly pixels: Uint32Array;
  #shown: Shown | null = null;

  constructor(
    readonly width: number,
    readonly height: number,
  ) {
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Paints the items, or moves what is there and paints what is missing. */
  paint(stage: Stage, items: Item[], marks: Tick[]): void {
    const x = Math.round(stage.gutter * stage.ratio);
    const width = this.width - x;
    const { view, layout, highlight } = stage.state;
    const nsPerPixel = view.width / Math.max(1, width);
    const lanes = items.map((item) => this.#lane(stage, item, x, width, nsPerPixel));
    const sparse = items.map((item, i) => item.kind === "curve" || !item.row || lookAt(item.row, lanes[i]).isSparse);
    const now: Shown = {
      low: view.low,
      nsPerPixel,
      scroll: stage.element.scrollTop,
      gutter: x,
      layout,
      palette: stage.palette,
      highlight,
      sparse,
    };
    const by = this.#moved(now);
    const [from, to] = by === null ? [0, width] : this.#move(x, by);
    // What stays is where it was to the pixel: sums of rounded moves must not drift.
    if (by !== null && this.#shown) now.low = this.#shown.low + by * nsPerPixel;
    this.#shown = now;
    if (from >= to) return;
    this.#clear(by === null ? 0 : x + from, x + to, stage.palette.ground);
    const columns = marks.map(({ t }) => Math.round(stage.x(t) * stage.ratio));
    paintGrid(this, columns, x + from, x + to, stage.palette.grid);
    items.forEach((item, i) => {
      const lane = lanes[i];
      const strip = { ...lane, x: x + from, width: to - from, low: lane.low + from * nsPerPixel };
      if (lane.height > 0) this.#item(stage, item, strip, sparse[i]);
    });
  }

  #item(stage: Stage, item: Item, lane: Lane, isSparse: boolean): void {
    const { highlight } = stage.state;
    if (item.kind === "curve") return paintPlot(this, lane, item.curve, stage.palette);
    if (!item.row) return;
    paintRow(this, lane, item.row, isSparse, stage.palette.paints, highlight?.isFading ?? false);
    const which = highlight?.matches?.get(item.row);
    if (which) paintSome(this, lane, item.row, which, stage.palette.paints);
  }

  #lane(stage: Stage, item: Item, x: number, width: number, nsPerPixel: number): Lane {
    const [top, tall] = stage.bars(item);
    const rank = item.kind === "curve" ? item.curve.rank : item.row?.rank;
    const low = stage.state.view.low - (rank?.offset ?? 0);
    const lane = { x, width, low, nsPerPixel };
    if (item.kind === "curve") return { ...lane, y: Math.round(top * stage.ratio), height: Math.round(tall * stage.ratio) };
    // A row cut by an edge is drawn shorter: pixels outside the picture are none.
    const y = Math.max(0, Math.round(top * stage.ratio));
    const bottom = Math.min(this.height, Math.round((top + tall) * stage.ratio));
    return { ...lane, y, height: Math.max(0, bottom - y) };
  }

  /** By how many whole pixels the view moved since it was painted; null where it must be painted anew. */
  #moved(now: Shown): number | null {
    const was = this.#shown;
    if (!was || Math.abs(was.nsPerPixel - now.nsPerPixel) > 1e-9 * now.nsPerPixel) return null;
    if (was.scroll !== now.scroll || was.gutter !== now.gutter) return null;
    if (was.layout !== now.layout || was.palette !== now.palette || was.highlight !== now.highlight) return null;
    if (was.sparse.length !== now.sparse.length || was.sparse.some((is, i) => is !== now.sparse[i])) return null;
    const by = (now.low - was.low) / now.nsPerPixel;
    return Math.abs(by - Math.round(by)) > WHOLE ? null : Math.round(by);
  }

  /** Moves the columns from `x` on left by `by` pixels; the columns from..to (counted from x) are now missing. */
  #move(x: number, by: number): [number, number] {
    const width = this.width - x;
    if (by === 0) return [0, 0];
    if (Math.abs(by) >= width) return [0, width];
    for (let at = x; at < this.pixels.length; at += this.width) {
      if (by > 0) this.pixels.copyWithin(at, at + by, at + width);
      else this.pixels.copyWithin(at - by, at, at + width + by);
    }
    return by > 0 ? [width - by, width] : [0, -by];
  }

  #clear(from: number, to: number, ground: Palette["ground"]): void {
    const colour = packed(ground);
    if (to - from === this.width) {
      this.pixels.fill(colour);
      return;
    }
    for (let at = 0; at < this.pixels.length; at += this.width) {
      this.pixels.fill(colour, at + from, at + to);
    }
  }
}

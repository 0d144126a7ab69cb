/** Curves under the rows: step lines over the ground, the most of the view beside them. */

import { bytes, count } from "../page/format";
import { firstOver, type Curve } from "../data/row";
import type { Item } from "./layout";
import { drawCurveLabel } from "./names";
import type { Lane, Picture } from "./paint";
import type { Palette } from "./palette";
import type { Stage } from "./stage";

export function amount(value: number, unit: string): string {
  return unit === "bytes" ? bytes(value) : count(value);
}

/**
 * Least and most of a curve in each pixel column: pairs, NaN before its first point.
 * `isWithOneBefore`: the first pair is that of the column before `low`.
 */
export function extremes(curve: Curve, low: number, nsPerPixel: number, width: number, isWithOneBefore = false): Float64Array {
  const n = isWithOneBefore ? width + 1 : width;
  const first = isWithOneBefore ? low - nsPerPixel : low;
  const out = new Float64Array(2 * n).fill(NaN);
  let i = firstOver(curve.at, first) - 1;
  for (let x = 0; x < n; x++) {
    const end = first + (x + 1) * nsPerPixel;
    let least = i >= 0 ? curve.value[i] : NaN;
    let most = least;
    while (i + 1 < curve.at.length && curve.at[i + 1] < end) {
      i++;
      const value = curve.value[i];
      if (!(least <= value)) least = value;
      if (!(most >= value)) most = value;
    }
    out[2 * x] = least;
    out[2 * x + 1] = most;
  }
  return out;
}

/** Paints a curve's columns: the ground under it, and the line. */
export function paintPlot(picture: Picture, lane: Lane, curve: Curve, palette: Palette): void {
  const { pixels } = picture;
  const both = extremes(curve, lane.low, lane.nsPerPixel, lane.width, true);
  const span = Math.max(1, curve.most - curve.least);
  const up = (value: number): number => Math.round(((value - curve.least) / span) * (lane.height - 2));
  const bottom = lane.y + lane.height - 1;
  const zero = up(0);
  const put = (x: number, from: number, to: number, colour: number): void => {
    for (let level = from; level <= to; level++) {
      const y = bottom - level;
      if (y >= 0 && y < picture.height) pixels[y * picture.width + lane.x + x] = colour;
    }
  };
  for (let x = 0; x < lane.width; x++) {
    put(x, zero, zero, palette.grid);
    const [before, least, most] = [both[2 * x + 1], both[2 * x + 2], both[2 * x + 3]];
    if (Number.isNaN(least)) continue;
    const top = up(most);
    put(x, Math.min(zero, top), Math.max(zero, top), palette.area);
    // A jump between two columns is a line from one value to the other.
    const from = Number.isNaN(before) ? least : Math.min(least, Math.max(before, curve.least));
    put(x, up(from), top + 1, palette.paints[0].fill);
  }
}

export function drawPlotText(context: CanvasRenderingContext2D, stage: Stage, item: Item, curve: Curve): void {
  drawCurveLabel(context, stage, item, curve);
  context.fillStyle = stage.palette.muted;
  context.textAlign = "right";
  context.fillText(`peak ${amount(curve.most, curve.meta.unit)}`, stage.width - 4, stage.y(item) + 7);
  context.textAlign = "left";
}

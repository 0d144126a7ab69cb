/** Curves under the rows: step lines over the ground, the most of the view beside them. */

import { bytes, count } from "../page/format";
import { firstOver, type Curve } from "../data/row";
import type { Item } from "./layout";
import { drawCurveLabel } from "./names";
import type { Stage } from "./stage";

const ROOM_ABOVE = 6;

export function amount(value: number, unit: string): string {
  return unit === "bytes" ? bytes(value) : count(value);
}

/** Least and most of a curve in each pixel column: pairs, NaN before its first point. */
export function extremes(curve: Curve, low: number, nsPerPixel: number, width: number): Float64Array {
  const out = new Float64Array(2 * width).fill(NaN);
  let i = firstOver(curve.at, low) - 1;
  for (let x = 0; x < width; x++) {
    const end = low + (x + 1) * nsPerPixel;
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

export function drawPlot(context: CanvasRenderingContext2D, stage: Stage, item: Item, curve: Curve): void {
  const above = stage.gutter === 0 ? 13 : 0;
  const top = stage.y(item) + above + ROOM_ABOVE;
  const height = item.height - above - ROOM_ABOVE - 4;
  const width = Math.max(1, Math.round(stage.width - stage.gutter));
  const low = stage.state.view.low - curve.rank.offset;
  const both = extremes(curve, low, stage.nsPerPixel, width);
  const span = Math.max(1, curve.most - curve.least);
  const y = (value: number): number => top + height - ((value - curve.least) / span) * height;
  const { palette } = stage;
  context.fillStyle = palette.line;
  context.fillRect(stage.gutter, y(0), width, 1);
  context.fillStyle = palette.paints[0].css;
  for (let x = 0; x < width; x++) {
    if (Number.isNaN(both[2 * x])) continue;
    const [bottom, upper] = [y(both[2 * x]), y(both[2 * x + 1])];
    context.globalAlpha = 0.25;
    context.fillRect(stage.gutter + x, upper, 1, y(0) - upper);
    context.globalAlpha = 1;
    // A jump within a column, or between two, is a line from one value to the other.
    const before = x > 0 && !Number.isNaN(both[2 * x - 1]) ? y(both[2 * x - 1]) : bottom;
    context.fillRect(stage.gutter + x, upper - 0.75, 1, Math.max(1.5, Math.max(bottom, before) - upper));
  }
  drawCurveLabel(context, stage, item, curve);
  context.fillStyle = palette.muted;
  context.textAlign = "right";
  context.fillText(`peak ${amount(curve.most, curve.meta.unit)}`, stage.width - 4, stage.y(item) + 7);
  context.textAlign = "left";
}

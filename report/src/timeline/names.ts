/** Text on the rows: names of intervals, labels of rows, heads of groups. */

import type { Curve, Row } from "../data/row";
import type { Head, Item } from "./layout";
import type { Stage } from "./stage";

export const FONT = "11px system-ui, sans-serif";
const LEAST_LABELLED = 30;
const PAD = 4;

/** Which intervals of a row are faded, because something else is pointed at. */
function fadedOf(stage: Stage, row: Row): (i: number) => boolean {
  const { highlight } = stage.state;
  if (!highlight?.isFading) return () => false;
  const which = highlight.matches?.get(row);
  if (!which) return () => true;
  const shown = new Set(which);
  return (i) => !shown.has(i);
}

/** Names in the intervals on screen that are wide enough, pinned to the left edge where they begin before it. */
export function drawNames(context: CanvasRenderingContext2D, stage: Stage, item: Item, row: Row): void {
  const { low, high } = stage.state.view;
  const [from, to] = row.range(low - row.rank.offset, high - row.rank.offset);
  if (to - from > stage.width) return; // too many for names
  const { data } = stage.state;
  const isFaded = fadedOf(stage, row);
  const [top, height] = stage.bars(item);
  if (height < 10) return;
  const middle = top + height / 2 + 0.5;
  context.textAlign = "left";
  for (let i = from; i < to; i++) {
    const x0 = Math.max(stage.gutter, stage.x(row.start[i] + row.rank.offset));
    const x1 = Math.min(stage.width, stage.x(row.end[i] + row.rank.offset));
    if (x1 - x0 < LEAST_LABELLED) continue;
    const text = row.nameOf(i) || data.label(row.category[i]);
    const short = stage.labels.fit(text, x1 - x0 - 2 * PAD);
    context.fillStyle = isFaded(i) ? stage.palette.muted : stage.palette.paints[row.category[i]].text;
    if (short !== "") context.fillText(short, x0 + PAD, middle);
  }
}

function backed(context: CanvasRenderingContext2D, stage: Stage, text: string, x: number, y: number): void {
  const width = stage.labels.width(text);
  context.fillStyle = stage.palette.groundCss;
  context.globalAlpha = 0.8;
  context.fillRect(x - 2, y - 6, width + 4, 12);
  context.globalAlpha = 1;
}

/** The label of a row: beside it, or over it where the screen is narrow. */
export function drawRowLabel(context: CanvasRenderingContext2D, stage: Stage, item: Item, row: Row): void {
  label(context, stage, item, row.meta.label);
}

export function drawCurveLabel(context: CanvasRenderingContext2D, stage: Stage, item: Item, curve: Curve): void {
  label(context, stage, item, curve.meta.label);
}

function label(context: CanvasRenderingContext2D, stage: Stage, item: Item, text: string): void {
  const indent = 6 + 10 * item.depth;
  const isAbove = stage.gutter === 0;
  const y = isAbove ? stage.y(item) + 7 : stage.y(item) + Math.min(item.height, 18) / 2;
  const room = isAbove ? stage.width - indent : stage.gutter - indent - 8;
  const short = stage.labels.fit(text, room);
  context.textAlign = "left";
  if (isAbove) backed(context, stage, short, indent, y);
  context.fillStyle = stage.palette.text;
  context.fillText(short, indent, y);
}

/** The head of a rank or group, with the mark that says whether it is open. */
export function drawHead(context: CanvasRenderingContext2D, stage: Stage, item: Item & Head): void {
  const y = stage.y(item);
  const indent = 6 + 10 * item.depth;
  if (item.isRank) {
    context.fillStyle = stage.palette.line;
    context.fillRect(0, y, stage.width, 1);
  }
  const text = `${item.isOpen ? "\u25be" : "\u25b8"} ${item.text}`;
  const room = stage.gutter === 0 || !item.row ? stage.width - indent : stage.gutter - indent - 8;
  const short = stage.labels.fit(text, room);
  context.textAlign = "left";
  if (stage.gutter === 0 || !item.row) backed(context, stage, short, indent, y + item.height / 2);
  context.fillStyle = stage.palette.text;
  context.fillText(short, indent, y + item.height / 2);
}

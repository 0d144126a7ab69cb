/** What lies over the rows: outlines of what is pointed at, selected, hovered and measured. */

import { moment } from "./axis";
import { FONT } from "./names";
import type { Item } from "./layout";
import type { Stage } from "./stage";
import { AXIS_HEIGHT } from "./stage";
import { time } from "../page/format";

const LEAST = 3;

/** Draws outlines and keeps them off the labels and the axis. */
export function drawMarks(context: CanvasRenderingContext2D, stage: Stage): void {
  context.save();
  context.beginPath();
  context.rect(stage.gutter, 0, stage.width - stage.gutter, stage.height);
  context.clip();
  drawHighlight(context, stage);
  drawMeasured(context, stage);
  const { selected, hovered } = stage.state;
  for (const hit of [hovered, selected]) {
    if (!hit) continue;
    const item = stage.state.layout.lineOf(hit.row);
    const offset = hit.row.rank.offset;
    if (item) box(context, stage, item, hit.row.start[hit.i] + offset, hit.row.end[hit.i] + offset, hit === selected ? 2 : 1);
  }
  drawPointer(context, stage);
  context.restore();
  drawCursor(context, stage);
}

/** An outline in the text's colour with the ground's around it, so that it shows on every colour. */
function box(context: CanvasRenderingContext2D, stage: Stage, item: Item, low: number, high: number, thick: number): void {
  const [top, height] = stage.bars(item);
  if (top + height < AXIS_HEIGHT || top > stage.height) return;
  const x = Math.max(-10, stage.x(low));
  const width = Math.max(LEAST, Math.min(stage.width + 10, stage.x(high)) - x);
  context.strokeStyle = stage.palette.groundCss;
  context.lineWidth = thick + 2;
  context.strokeRect(x - 0.5, top - 0.5, width + 1, height + 1);
  context.strokeStyle = stage.palette.text;
  context.lineWidth = thick;
  context.strokeRect(x - 0.5, top - 0.5, width + 1, height + 1);
}

function drawHighlight(context: CanvasRenderingContext2D, stage: Stage): void {
  const { highlight, view, span } = stage.state;
  if (!highlight) return;
  const items = highlight.rows.map((row) => stage.state.layout.lineOf(row)).filter((item) => item !== null);
  if (!highlight.matches) {
    let last = -Infinity;
    for (const each of [...highlight.spans].sort((a, b) => a.low - b.low)) {
      const [low, high] = [each.low + each.rank.offset, each.high + each.rank.offset];
      if (high < view.low || low > view.high) continue;
      if (stage.x(high) < last + LEAST) continue; // hidden behind the one before
      last = stage.x(high);
      for (const item of items) box(context, stage, item, low, high, 1);
      mark(context, stage, low, high, false);
    }
  }
  if (!span) return;
  const [low, high] = [span.low + span.rank.offset, span.high + span.rank.offset];
  const at = span.row ? stage.state.layout.lineOf(span.row) : null;
  band(context, stage, low, high);
  if (at) box(context, stage, at, low, high, 2);
  mark(context, stage, low, high, true);
}

/** A mark on the axis over a span. */
function mark(context: CanvasRenderingContext2D, stage: Stage, low: number, high: number, isCurrent: boolean): void {
  const x = stage.x(low);
  context.fillStyle = isCurrent ? stage.palette.text : stage.palette.muted;
  context.fillRect(x, AXIS_HEIGHT - (isCurrent ? 5 : 3), Math.max(LEAST, stage.x(high) - x), isCurrent ? 5 : 3);
}

function band(context: CanvasRenderingContext2D, stage: Stage, low: number, high: number): void {
  const x = stage.x(low);
  context.fillStyle = stage.palette.text;
  context.globalAlpha = 0.1;
  context.fillRect(x, AXIS_HEIGHT, Math.max(1, stage.x(high) - x), stage.height);
  context.globalAlpha = 1;
}

function drawMeasured(context: CanvasRenderingContext2D, stage: Stage): void {
  const { measured } = stage.state;
  if (!measured) return;
  band(context, stage, measured.low, measured.high);
  const [x0, x1] = [stage.x(measured.low), stage.x(measured.high)];
  context.fillStyle = stage.palette.text;
  for (const x of [x0, x1]) context.fillRect(Math.round(x), AXIS_HEIGHT, 1, stage.height);
  context.textAlign = "center";
  chip(context, stage, time(measured.high - measured.low), (x0 + x1) / 2, AXIS_HEIGHT / 2);
}

function drawPointer(context: CanvasRenderingContext2D, stage: Stage): void {
  const { pointer } = stage.state;
  if (pointer === null) return;
  const x = Math.round(stage.x(pointer));
  context.fillStyle = stage.palette.muted;
  context.globalAlpha = 0.5;
  context.fillRect(x, AXIS_HEIGHT, 1, stage.height);
  context.globalAlpha = 1;
  context.textAlign = "center";
  chip(context, stage, moment(pointer, stage.nsPerPixel), x, AXIS_HEIGHT / 2);
}

/** Text on the axis, on its own ground, kept on screen. */
function chip(context: CanvasRenderingContext2D, stage: Stage, text: string, x: number, y: number): void {
  const half = stage.labels.width(text) / 2 + 4;
  const at = Math.max(stage.gutter + half, Math.min(stage.width - half, x));
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = stage.palette.text;
  context.fillRect(at - half, y - 8, 2 * half, 16);
  context.fillStyle = stage.palette.groundCss;
  context.fillText(text, at, y);
}

/** The row that the keys act on. */
function drawCursor(context: CanvasRenderingContext2D, stage: Stage): void {
  const item = stage.state.layout.items[stage.state.cursor];
  if (!item || document.activeElement !== stage.element) return;
  const y = stage.y(item);
  if (y < AXIS_HEIGHT - 4) return;
  context.strokeStyle = stage.palette.text;
  context.lineWidth = 1;
  context.setLineDash([3, 2]);
  context.strokeRect(1.5, y + 0.5, Math.max(stage.gutter, 90) - 4, Math.min(item.height, 20) - 2);
  context.setLineDash([]);
}

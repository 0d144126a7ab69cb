/** Rows of intervals as pixels: what is dense from levels of detail, what is sparse interval by interval. */

import { levelFor } from "../data/levels";
import type { Row } from "../data/row";
import type { Paint } from "./palette";

/** A picture in memory: one number a pixel, `width` to a line. */
export interface Picture {
  pixels: Uint32Array;
  width: number;
  height: number;
}

/** Where a row is drawn, in device pixels, and the time of its first column on the rank's clock. */
export interface Lane {
  x: number;
  y: number;
  width: number;
  height: number;
  low: number;
  nsPerPixel: number;
}

const NONE = 255;
/** Intervals per pixel up to which each is drawn by itself. Chosen: two pixels an interval still tell them apart. */
const SPARSE = 0.5;
/** Width in pixels from which an interval ends with an empty column, so that neighbours stay apart. */
const APART = 4;

let kinds = new Uint8Array(0);
let edges = new Uint8Array(0);
let shares = new Uint8Array(0);
let sums = new Float32Array(0);

function makeRoom(width: number, n: number): void {
  if (kinds.length < width) {
    kinds = new Uint8Array(width);
    edges = new Uint8Array(width);
  }
  if (sums.length < width * n) {
    sums = new Float32Array(width * n);
    shares = new Uint8Array(width * n);
  }
}

/** Draws a line from top to bottom at each of the columns. */
export function paintGrid(picture: Picture, columns: number[], colour: number): void {
  for (const x of columns) {
    if (x < 0 || x >= picture.width) continue;
    for (let at = x; at < picture.pixels.length; at += picture.width) picture.pixels[at] = colour;
  }
}

/** Whether the intervals from..to of a lane are few enough to be drawn one by one. */
export function isSparse(n: number, lane: Lane): boolean {
  return n <= lane.width * SPARSE;
}

/** Marks the columns of one interval in `kinds`. */
function mark(row: Row, i: number, lane: Lane): void {
  const from = Math.max(0, Math.round((row.start[i] - lane.low) / lane.nsPerPixel));
  const to = Math.min(lane.width, Math.max(from + 1, Math.round((row.end[i] - lane.low) / lane.nsPerPixel)));
  if (from >= to) return;
  const end = to - from >= APART && to < lane.width ? to - 1 : to;
  kinds.fill(row.category[i], from, end);
  if (end - from >= 3) edges[from] = edges[end - 1] = 1;
}

/** Paints what `kinds` holds over the lane; other pixels stay. */
function stamp(picture: Picture, lane: Lane, paints: Paint[], isFaded: boolean): void {
  for (let y = 0; y < lane.height; y++) {
    const at = (lane.y + y) * picture.width + lane.x;
    const isRim = y === 0 || y === lane.height - 1;
    for (let x = 0; x < lane.width; x++) {
      const kind = kinds[x];
      if (kind === NONE) continue;
      const paint = paints[kind];
      if (isFaded) picture.pixels[at + x] = paint.faded;
      else if (isRim || edges[x] === 1) picture.pixels[at + x] = paint.edge;
      else picture.pixels[at + x] = (x + y) % 6 < 2 ? paint.hatch : paint.fill;
    }
  }
}

function clearMarks(width: number): void {
  makeRoom(width, 1);
  kinds.fill(NONE, 0, width);
  edges.fill(0, 0, width);
}

/** Draws the intervals `which` (indices, ascending) of a row over what is there, each at least one pixel wide. */
export function paintSome(picture: Picture, lane: Lane, row: Row, which: Int32Array, paints: Paint[]): void {
  const high = lane.low + lane.width * lane.nsPerPixel;
  clearMarks(lane.width);
  let [from, to] = [0, which.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (row.end[which[middle]] > lane.low) to = middle;
    else from = middle + 1;
  }
  for (let k = from; k < which.length && row.start[which[k]] < high; k++) mark(row, which[k], lane);
  stamp(picture, lane, paints, false);
}

/** Shares of each column from a level of detail. */
function sharesFromLevel(row: Row, lane: Lane): void {
  const { low, categories } = row.levels;
  const level = levelFor(row.levels, lane.nsPerPixel);
  if (!level) return;
  for (let x = 0; x < lane.width; x++) {
    const bucket = Math.floor((lane.low + (x + 0.5) * lane.nsPerPixel - low) / level.width);
    const isIn = bucket >= 0 && bucket < level.n;
    for (let k = 0; k < categories.length; k++) {
      shares[k * lane.width + x] = isIn ? level.share[k * level.n + bucket] : 0;
    }
  }
}

/** Shares of each column from the intervals from..to themselves. */
function sharesFromIntervals(row: Row, from: number, to: number, lane: Lane): void {
  const { categories } = row.levels;
  const { width } = lane;
  const place = new Int32Array(256);
  categories.forEach((category, k) => (place[category] = k * width));
  sums.fill(0, 0, width * categories.length);
  for (let i = from; i < to; i++) {
    const base = place[row.category[i]];
    const a = Math.max(0, (row.start[i] - lane.low) / lane.nsPerPixel);
    const b = Math.min(width, (row.end[i] - lane.low) / lane.nsPerPixel);
    const first = Math.floor(a);
    const last = Math.min(width - 1, Math.floor(b));
    if (first >= last) {
      if (first < width) sums[base + first] += b - a;
      continue;
    }
    sums[base + first] += first + 1 - a;
    for (let x = first + 1; x < last; x++) sums[base + x] = 1;
    sums[base + last] += b - last;
  }
  for (let i = 0; i < width * categories.length; i++) {
    shares[i] = sums[i] > 0 ? Math.max(1, Math.min(255, Math.round(sums[i] * 255))) : 0;
  }
}

/** Paints `shares` as columns that stand on the lane's floor: full height is a column busy throughout. */
function stack(picture: Picture, lane: Lane, row: Row, paints: Paint[], isFaded: boolean): void {
  const { categories } = row.levels;
  for (let x = 0; x < lane.width; x++) {
    let sum = 0;
    let at = 0;
    for (let k = 0; k < categories.length; k++) {
      const share = shares[k * lane.width + x];
      if (share === 0) continue;
      sum += share;
      const paint = paints[categories[k]];
      const to = Math.min(lane.height, Math.max(at + 1, Math.round((sum / 255) * lane.height)));
      const colour = isFaded ? paint.faded : paint.fill;
      for (; at < to; at++) picture.pixels[(lane.y + lane.height - 1 - at) * picture.width + lane.x + x] = colour;
    }
  }
}

/** Draws a row; returns the intervals from..to on screen where they were drawn one by one, so can bear labels. */
export function paintRow(picture: Picture, lane: Lane, row: Row, paints: Paint[], isFaded: boolean): [number, number] | null {
  const [from, to] = row.range(lane.low, lane.low + lane.width * lane.nsPerPixel);
  if (from === to) return null;
  if (isSparse(to - from, lane)) {
    clearMarks(lane.width);
    for (let i = from; i < to; i++) mark(row, i, lane);
    stamp(picture, lane, paints, isFaded);
    return [from, to];
  }
  makeRoom(lane.width, row.levels.categories.length);
  const finest = row.levels.levels[0].width;
  if (finest <= lane.nsPerPixel * 2) sharesFromLevel(row, lane);
  else sharesFromIntervals(row, from, to, lane);
  stack(picture, lane, row, paints, isFaded);
  return null;
}

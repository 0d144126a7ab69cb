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
const HATCH = 6;

// Room that all rows share, one column or one column and category each.
let kinds = new Uint8Array(0);
let edges = new Uint8Array(0);
let line = new Uint32Array(0);
let shares = new Uint8Array(0);
let sums = new Float32Array(0);

function makeRoom(width: number, n: number): void {
  if (kinds.length < width) {
    kinds = new Uint8Array(width);
    edges = new Uint8Array(width);
    line = new Uint32Array(width);
  }
  if (sums.length < width * n) {
    sums = new Float32Array(width * n);
    shares = new Uint8Array(width * n);
  }
}

/** Draws a line from top to bottom at each of the columns that lie in [low, high). */
export function paintGrid(picture: Picture, columns: number[], low: number, high: number, colour: number): void {
  const { pixels, width } = picture;
  for (const x of columns) {
    if (x < low || x >= high) continue;
    for (let at = x; at < pixels.length; at += width) pixels[at] = colour;
  }
}

/** Whether a lane's intervals are few enough to be drawn one by one, and which they are: from..to. */
export function lookAt(row: Row, lane: Lane): { isSparse: boolean; from: number; to: number } {
  const [from, to] = row.range(lane.low, lane.low + lane.width * lane.nsPerPixel);
  return { isSparse: to - from <= lane.width * SPARSE, from, to };
}

/** Marks the columns of one interval in `kinds`. */
function mark(row: Row, i: number, lane: Lane): void {
  const start = Math.round((row.start[i] - lane.low) / lane.nsPerPixel);
  const whole = Math.max(start + 1, Math.round((row.end[i] - lane.low) / lane.nsPerPixel));
  const end = whole - start >= APART ? whole - 1 : whole;
  const from = Math.max(0, start);
  const to = Math.min(lane.width, end);
  if (from >= to) return;
  kinds.fill(row.category[i], from, to);
  if (end - start < 3) return;
  if (from === start) edges[from] = 1;
  if (to === end) edges[to - 1] = 1;
}

/** Writes one line of what `kinds` holds over `line`, as it is `y` pixels under the lane's top. */
function writeLine(width: number, y: number, isRim: boolean, paints: Paint[], isFaded: boolean): void {
  const [own, rims, out] = [kinds, edges, line]; // locals: a module's variable is read anew at each use
  for (let x = 0; x < width; x++) {
    const kind = own[x];
    if (kind === NONE) continue;
    const paint = paints[kind];
    if (isFaded) out[x] = paint.faded;
    else if (isRim || rims[x] === 1) out[x] = paint.edge;
    else out[x] = (x + y) % HATCH < 2 ? paint.hatch : paint.fill;
  }
}

/** Paints what `kinds` holds over the lane; other pixels stay. `isPlain`: all lines under it are alike. */
function stamp(picture: Picture, lane: Lane, paints: Paint[], isFaded: boolean, isPlain: boolean): void {
  const { width, height } = lane;
  const { pixels } = picture;
  let isHatched = false;
  for (let x = 0; x < width && !isHatched; x++) isHatched = kinds[x] !== NONE && paints[kinds[x]].hatch !== paints[kinds[x]].fill;
  const whole = line.subarray(0, width);
  let written = "";
  for (let y = 0; y < height; y++) {
    const at = (lane.y + y) * picture.width + lane.x;
    const isRim = y === 0 || y === height - 1;
    const wanted = isRim ? "rim" : isHatched ? `${y}` : "body";
    if (wanted !== written || !isPlain) {
      whole.set(pixels.subarray(at, at + width));
      writeLine(width, y, isRim, paints, isFaded);
      written = wanted;
    }
    pixels.set(whole, at);
  }
}

function clearMarks(width: number): void {
  makeRoom(width, 1);
  kinds.fill(NONE, 0, width);
  edges.fill(0, 0, width);
}

/** Draws the intervals `which` (indices, ascending) of a row over what is there, each at least one pixel wide. */
export function paintSome(picture: Picture, lane: Lane, row: Row, which: Int32Array, paints: Paint[]): void {
  const high = lane.low + (lane.width + 1) * lane.nsPerPixel;
  clearMarks(lane.width);
  let [from, to] = [0, which.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (row.end[which[middle]] > lane.low - lane.nsPerPixel) to = middle;
    else from = middle + 1;
  }
  for (let k = from; k < which.length && row.start[which[k]] < high; k++) mark(row, which[k], lane);
  stamp(picture, lane, paints, false, false);
}

/** Shares of each column from a level of detail. */
function sharesFromLevel(row: Row, lane: Lane): void {
  const { low, categories } = row.levels;
  const level = levelFor(row.levels, lane.nsPerPixel);
  if (!level) return;
  const { share, n } = level;
  const { width } = lane;
  const first = (lane.low + 0.5 * lane.nsPerPixel - low) / level.width;
  const step = lane.nsPerPixel / level.width;
  const out = shares;
  for (let k = 0; k < categories.length; k++) {
    for (let x = 0; x < width; x++) {
      const bucket = Math.floor(first + x * step);
      out[k * width + x] = bucket >= 0 && bucket < n ? share[k * n + bucket] : 0;
    }
  }
}

/** Shares of each column from the intervals from..to themselves. */
function sharesFromIntervals(row: Row, from: number, to: number, lane: Lane): void {
  const { categories } = row.levels;
  const { width } = lane;
  const place = new Int32Array(256);
  categories.forEach((category, k) => (place[category] = k * width));
  const out = sums;
  out.fill(0, 0, width * categories.length);
  for (let i = from; i < to; i++) {
    const base = place[row.category[i]];
    const a = Math.max(0, (row.start[i] - lane.low) / lane.nsPerPixel);
    const b = Math.min(width, (row.end[i] - lane.low) / lane.nsPerPixel);
    if (b < a) continue;
    const first = Math.floor(a);
    const last = Math.min(width - 1, Math.floor(b));
    if (first >= last) {
      if (first < width) out[base + first] += b - a;
      continue;
    }
    out[base + first] += first + 1 - a;
    for (let x = first + 1; x < last; x++) out[base + x] = 1;
    out[base + last] += b - last;
  }
  for (let i = 0; i < width * categories.length; i++) {
    shares[i] = out[i] > 0 ? Math.max(1, Math.min(255, Math.round(out[i] * 255))) : 0;
  }
}

/** Turns the shares of each column into heights: how far up from the floor each category reaches, in pixels. */
function heights(width: number, height: number, n: number): void {
  const own = shares;
  for (let x = 0; x < width; x++) {
    let sum = 0;
    let top = 0;
    for (let at = x; at < n * width; at += width) {
      if (own[at] > 0) {
        sum += own[at];
        top = Math.min(height, Math.max(top + 1, Math.round((sum / 255) * height)));
      }
      own[at] = top;
    }
  }
}

/** Paints `shares` as columns that stand on the lane's floor: full height is a column busy throughout. */
function stack(picture: Picture, lane: Lane, row: Row, paints: Paint[], isFaded: boolean): void {
  const { width, height } = lane;
  const { pixels } = picture;
  const colours = Uint32Array.from(row.levels.categories, (kind) => (isFaded ? paints[kind].faded : paints[kind].fill));
  const n = colours.length;
  heights(width, height, n);
  const floor = lane.y * picture.width + lane.x;
  const ground = pixels.slice(floor, floor + width);
  const whole = line.subarray(0, width);
  // The height at which a column's colour changes next, and its category; locals for speed.
  const [next, kind, tops, out] = [edges, kinds, shares, line];
  next.fill(0, 0, width);
  kind.fill(0, 0, width);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (next[x] !== y) continue;
      let k = kind[x];
      while (k < n && tops[k * width + x] <= y) k++;
      kind[x] = k;
      next[x] = k < n ? tops[k * width + x] : NONE;
      out[x] = k < n ? colours[k] : ground[x];
    }
    pixels.set(whole, floor + (height - 1 - y) * picture.width);
  }
}

/** Draws the columns of a lane; `isSparse` is what the whole row is, of which the lane may be a strip. */
export function paintRow(picture: Picture, lane: Lane, row: Row, isSparse: boolean, paints: Paint[], isFaded: boolean): void {
  const [from, to] = row.range(lane.low - lane.nsPerPixel, lane.low + (lane.width + 1) * lane.nsPerPixel);
  if (from === to) return;
  if (isSparse) {
    clearMarks(lane.width);
    for (let i = from; i < to; i++) mark(row, i, lane);
    stamp(picture, lane, paints, isFaded, true);
    return;
  }
  makeRoom(lane.width, row.levels.categories.length);
  const finest = row.levels.levels[0].width;
  if (finest <= lane.nsPerPixel * 2) sharesFromLevel(row, lane);
  else sharesFromIntervals(row, from, to, lane);
  stack(picture, lane, row, paints, isFaded);
}

/** The roofline: what each kernel reached, beside what the device could at its ratio of flops to bytes. */

import { h, hideStatic, on, s } from "../page/dom";
import { figures, percent } from "../page/format";
import type { PageData, RankData } from "../data/row";
import { grouped, workOf, type Work } from "./work";

const WIDTH = 640;
const HEIGHT = 340;
const LEFT = 62;
const BOTTOM = 44;
const TOP = 14;
const RIGHT = 14;
const MOST = 150; // points; the rest take little time and would hide the others

/** A kernel on the plot: flops per byte, flops per s, its share of the time of all of them. */
export interface Point {
  work: Work;
  ratio: number;
  rate: number;
  share: number;
}

export function pointsOf(rows: Work[]): Point[] {
  const kernels = grouped(rows.filter((row) => row.kind === "kernel" && row.flops && row.bytes), "name");
  const all = kernels.reduce((sum, row) => sum + row.total, 0);
  return kernels
    .filter((row) => row.total > 0)
    .map((work) => {
      const flops = work.flops ?? 0;
      return { work, ratio: flops / (work.bytes ?? 1), rate: (flops / work.total) * 1e9, share: work.total / all };
    })
    .sort((a, b) => b.share - a.share)
    .slice(0, MOST);
}

/** A logarithmic scale over whole powers of ten. */
export function scale(least: number, most: number, from: number, to: number): { at: (x: number) => number; powers: number[] } {
  const low = Math.floor(Math.log10(least) + 1e-9);
  const high = Math.max(low + 1, Math.ceil(Math.log10(most) - 1e-9));
  const at = (x: number): number => from + ((Math.log10(x) - low) / (high - low)) * (to - from);
  return { at, powers: Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)) };
}

function powerText(x: number): string {
  return x >= 0.001 && x <= 1000 ? figures(x) : `1e${Math.round(Math.log10(x))}`;
}

/** Draws the plot of the first rank that has points and peaks; false where none has. */
export function drawRoofline(mount: HTMLElement, data: PageData): boolean {
  for (const rank of data.ranks) {
    const points = pointsOf(workOf(rank.meta.work, rank.meta.names));
    const { peak_flops: flops, peak_bytes: bytes } = rank.meta;
    if (points.length === 0 || !flops || !bytes) continue;
    hideStatic(mount);
    mount.append(plot(data, rank, points, flops, bytes));
    return true;
  }
  return false;
}

function plot(data: PageData, rank: RankData, points: Point[], flops: number, bytes: number): HTMLElement {
  const ridge = flops / bytes;
  const x = scale(Math.min(ridge / 10, ...points.map((p) => p.ratio)), Math.max(ridge * 10, ...points.map((p) => p.ratio)), LEFT, WIDTH - RIGHT);
  const y = scale(Math.min(flops / 100, ...points.map((p) => p.rate)), Math.max(flops, ...points.map((p) => p.rate)), HEIGHT - BOTTOM, TOP);
  const label = `Roofline of ${points.length} kernels: peak ${figures(flops / 1e12)} TFLOP/s, ${figures(bytes / 1e9)} GB/s`;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "roof", role: "group", "aria-label": label });
  for (const power of x.powers) {
    svg.append(s("line", { class: "roof-grid", x1: x.at(power), x2: x.at(power), y1: TOP, y2: HEIGHT - BOTTOM }));
    svg.append(s("text", { class: "roof-tick", x: x.at(power), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, powerText(power)));
  }
  for (const power of y.powers) {
    svg.append(s("line", { class: "roof-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(power), y2: y.at(power) }));
    svg.append(s("text", { class: "roof-tick", x: LEFT - 6, y: y.at(power) + 4, "text-anchor": "end" }, powerText(power / 1e12)));
  }
  svg.append(s("text", { class: "roof-tick", x: (LEFT + WIDTH) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, "flops per byte"));
  svg.append(s("text", { class: "roof-tick", x: -(HEIGHT - BOTTOM + TOP) / 2, y: 14, transform: "rotate(-90)", "text-anchor": "middle" }, "TFLOP/s"));
  const least = x.powers[0];
  const most = x.powers[x.powers.length - 1];
  const floor = y.powers[0];
  // The slope starts where it leaves the plot's floor.
  const start = Math.max(least, floor / bytes);
  const corners = [start, Math.min(ridge, most), most].map((ratio) => `${x.at(ratio)},${y.at(Math.min(flops, ratio * bytes))}`);
  svg.append(s("polyline", { class: "roof-line", points: corners.join(" ") }));
  const note = h("p", { class: "roof-note", role: "status" }, "Points are kernels, sized by their time; the line is the device's peak.");
  for (const point of points) svg.append(dot(data, rank, point, x.at(point.ratio), y.at(point.rate), note, Math.min(flops, point.ratio * bytes)));
  return h("figure", { class: "roof-figure" }, svg, note);
}

function dot(data: PageData, rank: RankData, point: Point, cx: number, cy: number, note: HTMLElement, roof: number): SVGElement {
  const { work, ratio, rate, share } = point;
  const words = `${work.name}: ${figures(rate / 1e12)} TFLOP/s at ${figures(ratio)} flops per byte, ${percent(rate / roof)} of the roof there; ${percent(share)} of these kernels' time`;
  const circle = s("circle", { cx, cy, r: 3 + 9 * Math.sqrt(share), class: "roof-dot" }, s("title", {}, words));
  const href = `#name=${work.nameIndex}&rank=${encodeURIComponent(data.linkOf(rank))}`;
  const link = s("a", { href, class: "see", "aria-label": words }, circle);
  for (const event of ["pointerenter", "focus"]) on(link, event, () => (note.textContent = words));
  return link;
}

/** Rows and curves of one rank with the searches over them; times in ns on the page's common clock. */

import { levelsOf, type Levels } from "./levels";
import type { Columns, Points } from "./decode";
import type { CurveMeta, Meta, RankMeta, TrackMeta } from "./meta";

/** The first index in [low, high) whose value is over `x`; high where none is. */
export function firstOver(values: Float64Array, x: number, low = 0, high = values.length): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Disjoint intervals sorted by start: columns of `n`, times from the start of the rank's window. */
export class Row {
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly name: Int32Array;
  readonly category: Uint8Array;
  readonly n: number;
  #built: Levels | null = null;

  constructor(
    readonly meta: TrackMeta,
    readonly rank: RankData,
    all: Columns,
  ) {
    const [low, high] = [meta.first, meta.first + meta.n];
    this.start = all.start.subarray(low, high);
    this.end = all.end.subarray(low, high);
    this.name = all.name.subarray(low, high);
    this.category = all.category.subarray(low, high);
    this.n = this.start.length;
  }

  /** The intervals that meet [low, high): indices from, to. */
  range(low: number, high: number): [number, number] {
    const from = firstOver(this.end, low);
    const to = firstOver(this.start, high);
    return [from, Math.max(from, to)];
  }

  /** The interval that holds `t`, or the nearest within `slack` ns; -1 where there is none. */
  at(t: number, slack = 0): number {
    const next = firstOver(this.end, t);
    if (next < this.n && this.start[next] <= t) return next;
    const after = next < this.n ? this.start[next] - t : Infinity;
    const before = next > 0 ? t - this.end[next - 1] : Infinity;
    if (Math.min(after, before) > slack) return -1;
    return before < after ? next - 1 : next;
  }

  nameOf(i: number): string {
    const index = this.name[i];
    return index < 0 ? "" : (this.rank.meta.names[index] ?? "");
  }

  /** Shares of each category per bucket, at several widths of bucket; built on first use. */
  get levels(): Levels {
    this.#built ??= levelsOf(this);
    return this.#built;
  }
}

/** A value over time: it holds from its moment to the next. */
export class Curve {
  readonly at: Float64Array;
  readonly value: Float64Array;
  readonly most: number;
  readonly least: number;

  constructor(
    readonly meta: CurveMeta,
    readonly rank: RankData,
    all: Points,
  ) {
    this.at = all.at.subarray(meta.first, meta.first + meta.n);
    this.value = all.value.subarray(meta.first, meta.first + meta.n);
    let [most, least] = [0, 0];
    for (const value of this.value) {
      if (value > most) most = value;
      if (value < least) least = value;
    }
    this.most = most;
    this.least = least;
  }

  /** The point that holds at `t`, -1 before the first. */
  holding(t: number): number {
    return firstOver(this.at, t) - 1;
  }
}

/** One rank: its rows and where its window lies on the page's clock. */
export class RankData {
  readonly rows: Row[];
  readonly curves: Curve[];
  readonly byKey = new Map<string, Row>();
  /** Length of the window. */
  readonly length: number;

  constructor(
    readonly index: number,
    readonly meta: RankMeta,
    /** What to add to its times to have them on the page's clock. */
    readonly offset: number,
    columns: Columns,
    points: Points,
  ) {
    this.length = meta.window_ns[1] - meta.window_ns[0];
    this.rows = meta.tracks.map((track) => new Row(track, this, columns));
    this.curves = meta.curves.map((curve) => new Curve(curve, this, points));
    for (const row of this.rows) this.byKey.set(row.meta.key, row);
  }

  get title(): string {
    return this.meta.label || (this.meta.rank === null ? "" : `rank ${this.meta.rank}`);
  }
}

/** Everything that the page draws. */
export class PageData {
  readonly ranks: RankData[];
  /** Where the last window ends on the page's clock, which starts with the first. */
  readonly length: number;

  constructor(
    readonly meta: Meta,
    columns: Columns,
    points: Points,
  ) {
    const lows = meta.ranks.map((rank) => rank.window_ns[0] + rank.shift_ns);
    const first = Math.min(...lows);
    this.ranks = meta.ranks.map((rank, i) => new RankData(i, rank, lows[i] - first, columns, points));
    this.length = Math.max(1, ...this.ranks.map((rank) => rank.offset + rank.length));
  }

  category(name: string): number {
    return this.meta.categories.indexOf(name);
  }

  label(category: number): string {
    const name = this.meta.categories[category] ?? "";
    return this.meta.labels[name] ?? name;
  }

  /** What a link calls the rank: its number where no other has it. */
  linkOf(rank: RankData): string {
    const named = [rank.meta.rank === null ? "" : String(rank.meta.rank), rank.meta.label, String(rank.index)];
    return named.find((text) => text !== "" && this.rankNamed(text) === rank) ?? String(rank.index);
  }

  /** The rank that a link names by its number, label or place; null where none does. */
  rankNamed(text: string): RankData | null {
    const ranks = this.ranks;
    return (
      ranks.find((rank) => String(rank.meta.rank) === text) ??
      ranks.find((rank) => rank.meta.label !== "" && rank.meta.label === text) ??
      ranks.find((rank) => String(rank.index) === text) ??
      null
    );
  }
}

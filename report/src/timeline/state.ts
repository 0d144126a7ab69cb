/** What the timeline shows now, and who wants to know when that changes. */

import type { PageData, RankData, Row } from "../data/row";
import type { Highlight, Span } from "../links/highlight";
import { Folds, Layout } from "./layout";
import { View } from "./view";

/** An interval of a row. */
export interface Hit {
  row: Row;
  i: number;
}

/** A stretch that was measured, on the page's clock. */
export interface Measured {
  rank: RankData;
  low: number;
  high: number;
}

/** What changed: `look` needs rows drawn again, `marks` only what lies over them, `said` only words. */
export type Change = "look" | "marks" | "said";

export class State {
  readonly view: View;
  readonly folds: Folds;
  layout: Layout;
  selected: Hit | null = null;
  hovered: Hit | null = null;
  /** Where the pointer is, on the page's clock; null where it is elsewhere. */
  pointer: number | null = null;
  measured: Measured | null = null;
  highlight: Highlight | null = null;
  /** Which span of the highlight is shown. */
  current = 0;
  /** The row that the keys act on: an index into the layout's items. */
  cursor = -1;
  #above = 0;
  readonly #listeners: ((change: Change) => void)[] = [];

  constructor(readonly data: PageData) {
    this.view = new View(data.length);
    this.folds = new Folds(data);
    this.layout = new Layout(data, this.folds, 0);
  }

  listen(listener: (change: Change) => void): void {
    this.#listeners.push(listener);
  }

  changed(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  /** Places the rows anew, with labels `above` pixels over their rows. */
  place(above = this.#above): void {
    this.#above = above;
    this.layout = new Layout(this.data, this.folds, above);
    this.cursor = Math.min(this.cursor, this.layout.items.length - 1);
    this.changed("look");
  }

  fold(id: string, isOpen: boolean): void {
    this.folds.set(id, isOpen);
    this.place();
  }

  select(hit: Hit | null): void {
    this.selected = hit;
    this.measured = null;
    this.changed("marks");
    this.changed("said");
  }

  /** Points at something and shows its first span; null points at nothing. */
  point(highlight: Highlight | null, isMoving = true): void {
    this.highlight = highlight;
    this.current = 0;
    if (highlight) {
      for (const row of highlight.rows.slice(0, 3)) this.folds.show(row);
      this.place();
      if (isMoving) this.showSpan(highlight.spans[0]);
    }
    this.changed("look");
    this.changed("said");
  }

  /** Goes `by` spans on in what is pointed at, round at the ends. */
  step(by: number): void {
    const spans = this.highlight?.spans;
    if (!spans || spans.length === 0) return;
    this.current = (this.current + by + spans.length) % spans.length;
    this.showSpan(spans[this.current]);
  }

  /** Shows [low, high). */
  show(low: number, high: number): void {
    this.view.set(low, high);
    this.changed("look");
  }

  fit(): void {
    this.show(0, this.view.length);
  }

  /** Makes the view `factor` times as long about `t`, or about its middle. */
  zoom(factor: number, t = (this.view.low + this.view.high) / 2): void {
    this.view.zoom(t, factor);
    this.changed("look");
  }

  /** Whether nothing lies over the rows. */
  get isBare(): boolean {
    return !(this.selected || this.hovered || this.measured || this.highlight || this.pointer !== null || this.cursor >= 0);
  }

  get span(): Span | null {
    return this.highlight?.spans[this.current] ?? null;
  }

  showSpan(span: Span): void {
    this.view.focus(span.low + span.rank.offset, span.high + span.rank.offset);
    this.measured = null;
    this.selected = span.row && span.i >= 0 ? { row: span.row, i: span.i } : null;
    this.changed("look");
    this.changed("said");
  }

  focusSelected(): void {
    if (!this.selected) return;
    const { row, i } = this.selected;
    this.view.focus(row.start[i] + row.rank.offset, row.end[i] + row.rank.offset);
    this.changed("look");
  }

  /** ns of each category of a rank's budget within [low, high) on the page's clock; null where it has no such row. */
  budgetWithin(measured: Measured): Map<number, number> | null {
    const row = measured.rank.rows.find((one) => one.meta.role === "budget");
    if (!row) return null;
    const [low, high] = [measured.low - measured.rank.offset, measured.high - measured.rank.offset];
    const sums = new Map<number, number>();
    const [from, to] = row.range(low, high);
    for (let i = from; i < to; i++) {
      const ns = Math.min(high, row.end[i]) - Math.max(low, row.start[i]);
      sums.set(row.category[i], (sums.get(row.category[i]) ?? 0) + ns);
    }
    return new Map([...sums].sort((a, b) => b[1] - a[1]));
  }
}

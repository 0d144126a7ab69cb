/** Which rows stand where: ranks and groups that fold, from top to bottom in CSS pixels. */

import type { Curve, PageData, RankData, Row } from "../data/row";

export interface Head {
  kind: "head";
  /** By what it is folded: "0" for a rank, "0|GPU 0" for a group of it. */
  id: string;
  text: string;
  isOpen: boolean;
  isRank: boolean;
  /** Drawn beside a folded head. */
  row: Row | null;
}

export interface Line {
  kind: "row";
  row: Row;
}

export interface Plot {
  kind: "curve";
  curve: Curve;
}

export type Item = (Head | Line | Plot) & { y: number; height: number; depth: number };

export const ROW_HEIGHT = 18;
const HEAD_HEIGHT = 20;
const PLOT_HEIGHT = 54;
/** Rows on a page up to which all groups start open. Chosen: about a screen. */
const OPEN_ROWS = 40;
const OPEN_THREAD_ROWS = 4;
const SUMMARY = new Set(["steps", "budget", "collectives"]);

/** Folds of ranks and groups: what the reader set, else what suits the number of rows. */
export class Folds {
  readonly #chosen = new Map<string, boolean>();
  readonly #isSmall: boolean;

  constructor(private readonly data: PageData) {
    this.#isSmall = data.ranks.reduce((sum, rank) => sum + rank.rows.length, 0) <= OPEN_ROWS;
  }

  isOpen(id: string, rows: Row[]): boolean {
    const chosen = this.#chosen.get(id);
    if (chosen !== undefined) return chosen;
    if (this.#isSmall) return true;
    if (!id.includes("|")) return this.data.ranks.length === 1;
    return rows.every((row) => row.meta.role !== "thread") || rows.length <= OPEN_THREAD_ROWS;
  }

  set(id: string, isOpen: boolean): void {
    this.#chosen.set(id, isOpen);
  }

  /** Opens what hides a row. */
  show(row: Row): void {
    this.set(String(row.rank.index), true);
    if (row.meta.group !== "") this.set(groupId(row.rank, row.meta.group), true);
  }
}

function groupId(rank: RankData, group: string): string {
  return `${rank.index}|${group}`;
}

/** Rows that stand together: neighbours of one group. */
function groupsOf(rows: Row[]): Row[][] {
  const groups: Row[][] = [];
  for (const row of rows) {
    const last = groups[groups.length - 1];
    if (last && row.meta.group !== "" && last[0].meta.group === row.meta.group) last.push(row);
    else groups.push([row]);
  }
  return groups;
}

export class Layout {
  readonly items: Item[] = [];
  height = 0;
  readonly #lines = new Map<Row, Item>();

  /** `above`: labels stand over their rows rather than beside them, which takes that many pixels more. */
  constructor(
    data: PageData,
    folds: Folds,
    private readonly above: number,
  ) {
    for (const rank of data.ranks) this.#addRank(rank, folds, data.ranks.length > 1);
  }

  /** The item at `y`, null below the last. */
  at(y: number): Item | null {
    return this.items.find((item) => y >= item.y && y < item.y + item.height) ?? null;
  }

  lineOf(row: Row): Item | null {
    return this.#lines.get(row) ?? null;
  }

  #add(item: Head | Line | Plot, height: number, depth: number): void {
    const placed = { ...item, y: this.height, height, depth };
    this.items.push(placed);
    if (placed.kind !== "curve" && placed.row) this.#lines.set(placed.row, placed);
    this.height += height;
  }

  #addRank(rank: RankData, folds: Folds, isOneOfMany: boolean): void {
    const id = String(rank.index);
    const isOpen = !isOneOfMany || folds.isOpen(id, rank.rows);
    const depth = isOneOfMany ? 1 : 0;
    if (isOneOfMany) {
      const text = rank.title || `rank ${rank.index}`;
      this.#add({ kind: "head", id, text, isOpen, isRank: true, row: null }, HEAD_HEIGHT, 0);
    }
    if (!isOpen) {
      for (const row of rank.rows) if (SUMMARY.has(row.meta.role)) this.#addRow(row, depth);
      return;
    }
    for (const rows of groupsOf(rank.rows)) this.#addGroup(rank, rows, folds, depth);
    for (const curve of rank.curves) this.#add({ kind: "curve", curve }, PLOT_HEIGHT + this.above, depth);
  }

  #addGroup(rank: RankData, rows: Row[], folds: Folds, depth: number): void {
    const group = rows[0].meta.group;
    if (group === "" || rows.length === 1) {
      for (const row of rows) this.#addRow(row, depth);
      return;
    }
    const id = groupId(rank, group);
    const isOpen = folds.isOpen(id, rows);
    const text = isOpen ? group : `${group} (${rows.length} rows)`;
    const row = isOpen ? null : rows[0];
    this.#add({ kind: "head", id, text, isOpen, isRank: false, row }, HEAD_HEIGHT, depth);
    if (isOpen) for (const row of rows) this.#addRow(row, depth + 1);
  }

  #addRow(row: Row, depth: number): void {
    this.#add({ kind: "row", row }, ROW_HEIGHT + this.above, depth);
  }
}

/** Kernels and operators: rows of meta.work with names in place of numbers, searched, sorted and summed by group. */

import { plain, type WorkMeta } from "../data/meta";

/** All launches of one kernel, or runs of one operator, from one place; or the sum of several such. */
export interface Work {
  kind: string;
  name: string;
  op: string;
  shape: string;
  module: string;
  line: string;
  /** The name's number in the rank's names; -1 for a sum over several. */
  nameIndex: number;
  n: number;
  total: number;
  self: number;
  most: number;
  /** Null where any part of the sum is not known. */
  flops: number | null;
  bytes: number | null;
  /** How many rows it sums. */
  rows: number;
}

export const GROUPS = ["name", "shape", "module", "line", "op"] as const;
export type Group = (typeof GROUPS)[number];

/** The rows of a rank; columns are found by their names. */
export function workOf(work: WorkMeta, names: string[]): Work[] {
  const at = new Map(work.columns.map((column, i) => [column, i]));
  const cell = (row: (string | number | null)[], column: string): string | number | null => {
    const i = at.get(column);
    return i === undefined ? null : row[i];
  };
  const text = (row: (string | number | null)[], column: string): string => names[Number(cell(row, column) ?? -1)] ?? "";
  const maybe = (value: string | number | null): number | null => (value === null ? null : Number(value));
  return work.rows.map((row) => ({
    kind: plain(String(cell(row, "kind") ?? "")),
    name: text(row, "name"),
    op: text(row, "op"),
    shape: text(row, "shape"),
    module: text(row, "module"),
    line: text(row, "line"),
    nameIndex: Number(cell(row, "name") ?? -1),
    n: Number(cell(row, "n") ?? 0),
    total: Number(cell(row, "total_ns") ?? 0),
    self: Number(cell(row, "self_ns") ?? 0),
    most: Number(cell(row, "max_ns") ?? 0),
    flops: maybe(cell(row, "flops")),
    bytes: maybe(cell(row, "bytes")),
    rows: 1,
  }));
}

function plus(a: number | null, b: number | null): number | null {
  return a === null || b === null ? null : a + b;
}

/** A text where all parts of a sum have the same, else "". */
function same(a: string, b: string): string {
  return a === b ? a : "";
}

function joined(a: Work, b: Work): Work {
  return {
    kind: a.kind,
    name: same(a.name, b.name),
    op: same(a.op, b.op),
    shape: same(a.shape, b.shape),
    module: same(a.module, b.module),
    line: same(a.line, b.line),
    nameIndex: a.nameIndex === b.nameIndex ? a.nameIndex : -1,
    n: a.n + b.n,
    total: a.total + b.total,
    self: a.self + b.self,
    most: Math.max(a.most, b.most),
    flops: plus(a.flops, b.flops),
    bytes: plus(a.bytes, b.bytes),
    rows: a.rows + b.rows,
  };
}

/** Sums by one column; rows in which it is not known are a group too. */
export function grouped(rows: Work[], by: Group): Work[] {
  const sums = new Map<string, Work>();
  for (const row of rows) {
    const before = sums.get(row[by]);
    sums.set(row[by], before ? joined(before, row) : row);
  }
  return [...sums.values()];
}

export function searched(rows: Work[], text: string): Work[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return rows;
  return rows.filter((row) => GROUPS.some((column) => row[column].toLowerCase().includes(wanted)));
}

/** TFLOP/s; null where flops or time are not known. */
export function tflops(row: Work): number | null {
  return row.flops === null || row.total <= 0 ? null : row.flops / row.total / 1e3;
}

/** GB/s: bytes per ns. */
export function bandwidth(row: Work): number | null {
  return row.bytes === null || row.total <= 0 ? null : row.bytes / row.total;
}

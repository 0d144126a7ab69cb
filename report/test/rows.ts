/** Rows and pages for tests. */

import type { Meta, ProofMeta, RankMeta, Role } from "../src/data/meta";
import { PageData, type Row } from "../src/data/row";

export type Drawn = [start: number, end: number, category: number, name?: number];

export interface DrawnRow {
  key: string;
  role?: Role;
  group?: string;
  intervals: Drawn[];
}

export function rowOf(intervals: Drawn[]): Row {
  return pageOf([{ rows: [{ key: "stream", intervals }] }]).ranks[0].rows[0];
}

export interface DrawnRank {
  rank?: number | null;
  label?: string;
  window?: [number, number];
  shift?: number;
  names?: string[];
  rows: DrawnRow[];
  proofs?: Record<string, ProofMeta>;
}

export function pageOf(ranks: DrawnRank[]): PageData {
  const all = ranks.flatMap((rank) => rank.rows.flatMap((row) => row.intervals));
  let first = 0;
  const metas = ranks.map((rank): RankMeta => {
    const tracks = rank.rows.map((row) => {
      const at = first;
      first += row.intervals.length;
      const role: Role = row.role ?? "stream";
      return { key: row.key, label: row.key, group: row.group ?? "", role, first: at, n: row.intervals.length, is_reduced: false };
    });
    return {
      label: rank.label ?? "",
      rank: rank.rank ?? null,
      window_ns: rank.window ?? [0, 1e6],
      shift_ns: rank.shift ?? 0,
      names: rank.names ?? [],
      tracks,
      curves: [],
      proofs: rank.proofs ?? {},
      work: { columns: [], rows: [], n_all: 0 },
      peak_flops: null,
      peak_bytes: null,
    };
  });
  const meta: Meta = { version: 1, categories: ["compute", "idle_data"], labels: { idle_data: "data" }, ranks: metas };
  const columns = {
    start: Float64Array.from(all, (one) => one[0]),
    end: Float64Array.from(all, (one) => one[1]),
    name: Int32Array.from(all, (one) => one[3] ?? -1),
    category: Uint8Array.from(all, (one) => one[2]),
  };
  return new PageData(meta, columns, { at: new Float64Array(0), value: new Float64Array(0) });
}

/** The page's table of contents: what `profkit-meta` holds, version 1. */

export type Role = "steps" | "budget" | "host" | "stream" | "thread" | "collectives";

/** One row of intervals; `first` is the number of its first interval in the whole. */
export interface TrackMeta {
  key: string;
  label: string;
  group: string;
  role: Role;
  first: number;
  n: number;
  is_reduced: boolean;
}

export interface CurveMeta {
  key: string;
  label: string;
  unit: string;
  first: number;
  n: number;
}

/** The intervals on which a sentence stands: as `spans` (start, length in ns), or all of `category` in `tracks`. */
export interface ProofMeta {
  label: string;
  tracks: string[];
  category: string;
  spans: [number, number][];
  n: number;
  total_ns: number;
}

export type WorkCell = string | number | null;

export interface WorkMeta {
  columns: string[];
  rows: WorkCell[][];
  n_all: number;
}

export interface RankMeta {
  label: string;
  rank: number | null;
  window_ns: [number, number];
  shift_ns: number;
  names: string[];
  tracks: TrackMeta[];
  curves: CurveMeta[];
  proofs: Record<string, ProofMeta>;
  work: WorkMeta;
  peak_flops: number | null;
  peak_bytes: number | null;
}

export interface Meta {
  version: number;
  categories: string[];
  labels: Record<string, string>;
  ranks: RankMeta[];
}

export const VERSION = 1;

// Marks that turn the direction of text, and control characters: a stranger's name shows them instead of obeying them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** The text with each unseen mark written out: `\u202e`. */
export function plain(text: string): string {
  return text.replace(UNSEEN, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** What the block holds, names made plain; null where there is none or it is of another version. */
export function parseMeta(text: string): Meta | null {
  const meta = JSON.parse(text) as Meta;
  if (meta.version !== VERSION) return null;
  for (const rank of meta.ranks) {
    rank.names = rank.names.map(plain);
    rank.label = plain(rank.label);
    for (const track of rank.tracks) {
      track.label = plain(track.label);
      track.group = plain(track.group);
    }
  }
  return meta;
}

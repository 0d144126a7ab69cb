/** What is pointed at: the intervals of a proof, of a name, of a part of the budget, or of a search. */

import { count, time } from "../page/format";
import type { PageData, RankData, Row } from "../data/row";

/** A stretch of time of a rank, on the rank's clock, and the row to look at; `i` is -1 where it is no interval of it. */
export interface Span {
  rank: RankData;
  row: Row | null;
  i: number;
  low: number;
  high: number;
}

export interface Highlight {
  title: string;
  /** How many and how long: "37, 12.3 ms in all". */
  sum: string;
  n: number;
  /** The longest first. */
  spans: Span[];
  /** The spans outlined in each row where they are no intervals of it. */
  rows: Row[];
  /** Which intervals of which rows, ascending; null where `spans` says it all. */
  matches: Map<Row, Int32Array> | null;
  /** Whether all else fades. */
  isFading: boolean;
}

/** Chosen: more than anybody steps through. */
const MOST_SPANS = 2000;
const EMPTY = new Int32Array(0);

/** The indices of a row's intervals for which `is` holds. */
function indices(row: Row, is: (i: number) => boolean): Int32Array {
  let n = 0;
  const found = new Int32Array(row.n);
  for (let i = 0; i < row.n; i++) if (is(i)) found[n++] = i;
  return n === 0 ? EMPTY : found.slice(0, n);
}

/** The longest of the intervals matched, at most MOST_SPANS, the longest first. */
function longest(matches: Map<Row, Int32Array>): Span[] {
  const spans: Span[] = [];
  let n = 0;
  for (const which of matches.values()) n += which.length;
  const lengths = new Float64Array(n);
  let at = 0;
  for (const [row, which] of matches) for (const i of which) lengths[at++] = row.end[i] - row.start[i];
  lengths.sort();
  const least = n > MOST_SPANS ? lengths[n - MOST_SPANS] : -1;
  for (const [row, which] of matches) {
    for (const i of which) {
      if (row.end[i] - row.start[i] < least) continue;
      spans.push({ rank: row.rank, row, i, low: row.start[i], high: row.end[i] });
    }
  }
  spans.sort((a, b) => b.high - b.low - (a.high - a.low) || a.low - b.low);
  return spans.slice(0, MOST_SPANS);
}

const KINDS: Record<string, string> = { stream: "on the device", thread: "on the host", host: "on the host" };

/** How many and how long, kinds of rows apart: a kernel's time and its operator's are two things. */
function sumOf(matches: Map<Row, Int32Array>): string {
  const sums = new Map<string, [number, number]>();
  for (const [row, which] of matches) {
    const kind = KINDS[row.meta.role] ?? "in other rows";
    const sum = sums.get(kind) ?? [0, 0];
    for (const i of which) sum[1] += row.end[i] - row.start[i];
    sum[0] += which.length;
    sums.set(kind, sum);
  }
  if (sums.size === 1) return [...sums.values()].map(([n, ns]) => `${count(n)}, ${time(ns)} in all`)[0];
  const all = [...sums.values()].reduce((sum, [n]) => sum + n, 0);
  return `${count(all)}: ${[...sums].map(([kind, [n, ns]]) => `${count(n)} ${kind}, ${time(ns)}`).join("; ")}`;
}

function ofMatches(title: string, matches: Map<Row, Int32Array>, isFading: boolean): Highlight | null {
  for (const [row, which] of matches) if (which.length === 0) matches.delete(row);
  if (matches.size === 0) return null;
  const n = [...matches.values()].reduce((sum, which) => sum + which.length, 0);
  return { title, sum: sumOf(matches), n, spans: longest(matches), rows: [...matches.keys()], matches, isFading };
}

/** All intervals of one name, of one rank. */
export function ofName(rank: RankData, index: number): Highlight | null {
  const name = rank.meta.names[index];
  if (name === undefined) return null;
  const matches = new Map(rank.rows.map((row) => [row, indices(row, (i) => row.name[i] === index)]));
  return ofMatches(name, matches, true);
}

/** All intervals of a category in the rows; the budget's row unless others are given. */
export function ofCategory(data: PageData, rank: RankData, category: string, rows?: Row[]): Highlight | null {
  const wanted = data.category(category);
  if (wanted < 0) return null;
  const where = rows ?? rank.rows.filter((row) => row.meta.role === "budget");
  const matches = new Map(where.map((row) => [row, indices(row, (i) => row.category[i] === wanted)]));
  return ofMatches(data.label(wanted), matches, true);
}

/** What proves the sentence `key`, on the rank or on the first that has it. */
export function ofProof(data: PageData, rank: RankData | null, key: string): Highlight | null {
  const owner = rank ?? data.ranks.find((one) => Object.hasOwn(one.meta.proofs, key));
  if (!owner || !Object.hasOwn(owner.meta.proofs, key)) return null;
  const proof = owner.meta.proofs[key];
  const rows = proof.tracks.map((track) => owner.byKey.get(track)).filter((row) => row !== undefined);
  const sum = `${count(proof.n)}, ${time(proof.total_ns)} in all`;
  const title = proof.label;
  if (proof.category !== "") {
    const found = ofCategory(data, owner, proof.category, rows);
    return found && { ...found, title, sum, n: proof.n };
  }
  const row = rows[0] ?? null;
  const spans = proof.spans
    .map(([start, length]): Span => ({ rank: owner, row, i: -1, low: start, high: start + length }))
    .sort((a, b) => b.high - b.low - (a.high - a.low) || a.low - b.low);
  return spans.length === 0 ? null : { title, sum, n: proof.n, spans, rows, matches: null, isFading: false };
}

/** A stretch of time that a link names. */
export function ofStretch(rank: RankData, low: number, high: number): Highlight {
  const span: Span = { rank, row: null, i: -1, low, high };
  return { title: "the linked stretch", sum: time(high - low), n: 1, spans: [span], rows: [], matches: null, isFading: false };
}

/** All intervals whose name holds the text, upper and lower case alike; names are compared once each. */
export function ofSearch(data: PageData, text: string): Highlight | null {
  const wanted = text.toLowerCase();
  const matches = new Map<Row, Int32Array>();
  for (const rank of data.ranks) {
    const isWanted = Uint8Array.from(rank.meta.names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0));
    if (!isWanted.includes(1)) continue;
    for (const row of rank.rows) matches.set(row, indices(row, (i) => row.name[i] >= 0 && isWanted[row.name[i]] === 1));
  }
  return ofMatches(`\u201c${text}\u201d`, matches, true);
}

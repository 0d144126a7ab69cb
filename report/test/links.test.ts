import { describe, expect, it } from "vitest";
import { plain, type ProofMeta } from "../src/data/meta";
import { parseHash } from "../src/links/hash";
import { ofCategory, ofName, ofProof, ofSearch } from "../src/links/highlight";
import { State } from "../src/timeline/state";
import { pageOf } from "./rows";

const PROOF: ProofMeta = { label: "waits", tracks: ["budget"], category: "", spans: [[10, 5], [40, 20]], n: 37, total_ns: 12_300_000 };

function page() {
  const names = ["gemm", "copy", "</script><img onerror=1>"];
  const budget = { key: "budget", role: "budget" as const, intervals: [[0, 10, 0], [10, 40, 1], [40, 100, 0]] as [number, number, number][] };
  const stream = { key: "stream", intervals: [[0, 8, 0, 0], [20, 50, 0, 2], [60, 61, 0, 0]] as [number, number, number, number][] };
  return pageOf([
    { rank: 0, label: "rank 0", window: [1000, 1100], names, rows: [budget, stream] },
    { rank: 3, label: "rank 3", window: [990, 1090], shift: 50, names, rows: [budget, stream], proofs: { "finding:sync": PROOF } },
  ]);
}

describe("the part of the address behind #", () => {
  it("asks for proofs, times, names and parts", () => {
    expect(parseHash("#see=finding:sync.blocking&rank=3")).toEqual({ kind: "see", key: "finding:sync.blocking", rank: "3" });
    expect(parseHash("#t=10-250")).toEqual({ kind: "time", low: 10, high: 250, rank: null });
    expect(parseHash("#name=7")).toEqual({ kind: "name", index: 7, rank: null });
    expect(parseHash("#part=idle_data&rank=rank%203")).toEqual({ kind: "part", part: "idle_data", rank: "rank 3" });
    expect(parseHash("#step=4")).toEqual({ kind: "see", key: "step:4", rank: null });
  });

  it("asks for nothing where it is an anchor or nonsense", () => {
    for (const hash of ["", "#", "#findings", "#t=9-1", "#name=x", "#see", "#see=%E0%A4%A"]) expect(parseHash(hash)).toBeNull();
  });
});

describe("what a link points at", () => {
  it("is the longest span of a proof first, on the rank that has it", () => {
    const found = ofProof(page(), null, "finding:sync");
    expect(found?.spans.map((span) => [span.rank.meta.rank, span.low, span.high])).toEqual([[3, 40, 60], [3, 10, 15]]);
    expect(found?.sum).toBe("37, 12.3 ms in all");
    expect(ofProof(page(), null, "toString")).toBeNull();
  });

  it("is each interval of a name or a part", () => {
    const data = page();
    expect(ofName(data.ranks[0], 0)?.spans.map((span) => span.low)).toEqual([0, 60]);
    expect(ofName(data.ranks[0], 99)).toBeNull();
    expect(ofCategory(data, data.ranks[0], "idle_data")?.sum).toBe("1, 30 ns in all");
    expect(ofCategory(data, data.ranks[0], "nonsense")).toBeNull();
  });

  it("is found by any part of a name, markup too, on all ranks", () => {
    expect(ofSearch(page(), "IMG ON")?.n).toBe(2);
    expect(ofSearch(page(), "absent")).toBeNull();
  });

  it("moves the view on the common clock, round at the ends", () => {
    const data = page();
    const state = new State(data);
    expect(data.ranks.map((rank) => rank.offset)).toEqual([0, 40]);
    state.point(ofProof(data, null, "finding:sync"));
    expect([state.view.low, state.view.high]).toEqual([60, 120]);
    state.step(1);
    state.step(1);
    expect([state.view.low, state.view.high]).toEqual([60, 120]);
  });
});

describe("a measured stretch", () => {
  it("is told by the parts of the budget within it", () => {
    const data = page();
    const within = new State(data).budgetWithin({ rank: data.ranks[0], low: 5, high: 50 });
    expect([...(within ?? [])]).toEqual([[1, 30], [0, 15]]);
  });
});

describe("ranks", () => {
  it("are named by number where no two share it, else by label", () => {
    const data = pageOf([{ rank: 0, label: "before", rows: [] }, { rank: 0, label: "after", rows: [] }]);
    expect(data.ranks.map((rank) => data.linkOf(rank))).toEqual(["0", "after"]);
    expect(data.rankNamed("after")?.index).toBe(1);
    expect(data.rankNamed("7")).toBeNull();
  });
});

describe("a stranger's name", () => {
  it("shows marks that turn the direction of text", () => {
    expect(plain("a\u202eb\u0000\u2066c")).toBe("a\\u202eb\\u0000\\u2066c");
  });
});

import { describe, expect, it } from "vitest";
import { bytesOf, columnsOf, inflate } from "../src/data/decode";

/** Little-endian planes of whole numbers. */
function planes(values: bigint[], n: number): number[] {
  return Array.from({ length: n }, (_, k) => values.map((v) => Number((BigInt.asUintN(64, v) >> BigInt(8 * k)) & 255n))).flat();
}

function u32(n: number): number[] {
  return [0, 8, 16, 24].map((shift) => (n >>> shift) & 255);
}

/** Two rows, of three and two intervals, and one curve of two points. */
function block(): Uint8Array<ArrayBuffer> {
  const start = [-5n, 105n, 2n ** 40n, 7n, 1n];
  const length = [5n, 1n, 2n ** 33n, 0n, 9n];
  const name = [0n, 2n ** 32n - 1n, 3n, 1n, 70000n];
  const bytes = [...u32(5), ...planes(start, 6), ...planes(length, 6), ...planes(name, 4), 0, 1, 2, 3, 14];
  bytes.push(...u32(2), ...planes([-3n, 10n], 6), ...planes([-1n, 2n ** 40n + 1n], 8));
  return new Uint8Array(bytes);
}

const TRACKS = [
  { first: 0, n: 3 },
  { first: 3, n: 2 },
];

describe("the data block", () => {
  it("adds up starts within each row, below the window too", () => {
    const [columns, points] = columnsOf(block(), TRACKS, [{ first: 0, n: 2 }]);
    expect([...columns.start]).toEqual([-5, 100, 100 + 2 ** 40, 7, 8]);
    expect([...columns.end]).toEqual([0, 101, 100 + 2 ** 40 + 2 ** 33, 7, 17]);
    expect([...columns.name]).toEqual([0, -1, 3, 1, 70000]);
    expect([...columns.category]).toEqual([0, 1, 2, 3, 14]);
    expect([...points.at]).toEqual([-3, 7]);
    expect([...points.value]).toEqual([-1, 2 ** 40 + 1]);
  });

  it("survives packing", async () => {
    const packed = new Blob([block()]).stream().pipeThrough(new CompressionStream("deflate"));
    const text = btoa(String.fromCharCode(...new Uint8Array(await new Response(packed).arrayBuffer())));
    expect(await inflate(bytesOf(`\n${text}\n`))).toEqual(block());
  });

  it("is refused where it is cut short", () => {
    expect(() => columnsOf(block().slice(0, 40), TRACKS, [])).toThrow(RangeError);
  });
});

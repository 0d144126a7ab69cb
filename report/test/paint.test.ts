import { describe, expect, it } from "vitest";
import { levelFor, levelsOf } from "../src/data/levels";
import { lookAt, paintRow, type Lane, type Picture } from "../src/timeline/paint";
import { paintOf, contrast, packed } from "../src/timeline/palette";
import { middleCut } from "../src/timeline/text";
import { rowOf } from "./rows";

/** `n` intervals of 6 ns, each 10 ns after the one before, of categories 0 and 1 in turn. */
function comb(n: number): [number, number, number][] {
  return Array.from({ length: n }, (_, i) => [i * 10, i * 10 + 6, i % 2]);
}

const PAINTS = [0, 1].map((i) => paintOf([0, i === 0 ? 114 : 20, 178], [255, 255, 255], [0, 0, 0], false));
const lane = (width: number, low: number, nsPerPixel: number): Lane => ({ x: 0, y: 0, width, height: 10, low, nsPerPixel });
/** Paints a row; says whether interval by interval. */
function paint(picture: Picture, where: Lane, intervals: [number, number, number][]): boolean {
  const row = rowOf(intervals);
  const { isSparse } = lookAt(row, where);
  paintRow(picture, where, row, isSparse, PAINTS, false);
  return isSparse;
}

const blank = (width: number) => ({ pixels: new Uint32Array(width * 10), width, height: 10 });

describe("levels of detail", () => {
  it("hold the share of each category, at every level", () => {
    const { levels, categories } = levelsOf(rowOf(comb(100_000)));
    expect(categories).toEqual([0, 1]);
    for (const level of levels) {
      const sums = [0, 1].map((k) => level.share.subarray(k * level.n, (k + 1) * level.n).reduce((a, b) => a + b, 0));
      for (const sum of sums) expect(sum / level.n / 255).toBeCloseTo(0.3, 1);
    }
  });

  it("are chosen so that a bucket is at least a pixel", () => {
    const levels = levelsOf(rowOf(comb(100_000)));
    const level = levelFor(levels, 700);
    expect(level && level.width >= 700 && level.width < 1400).toBe(true);
  });

  it("lose no rare interval", () => {
    const levels = levelsOf(rowOf([...comb(5000), [9e7, 9e7 + 1, 1]]));
    const finest = levels.levels[0];
    expect(finest.share[2 * finest.n - 1]).toBeGreaterThan(0);
  });
});

describe("a row's pixels", () => {
  it("are the intervals themselves where they are few", () => {
    const picture = blank(40);
    expect(paint(picture, lane(40, 0, 1), comb(4))).toBe(true);
    const line = [...picture.pixels.subarray(5 * 40, 5 * 40 + 12)];
    expect(line.map((colour) => (colour === 0 ? 0 : 1))).toEqual([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1]);
  });

  it("are as high as the row is busy where intervals are many", () => {
    for (const from of [0, 40_000]) {
      const picture = blank(20);
      expect(paint(picture, lane(20, from, 100), comb(10_000))).toBe(false);
      const filled = picture.pixels.reduce((n, colour) => n + (colour === 0 ? 0 : 1), 0);
      expect(filled / 200).toBeCloseTo(0.6, 1);
    }
  });

  it("are the same drawn at once or in strips", () => {
    for (const [n, low, nsPerPixel] of [[30, 3, 2], [10_000, 0, 100], [100_000, 5e5, 20]]) {
      const row = rowOf(comb(n));
      const [whole, parts] = [blank(60), blank(60)];
      const all = lane(60, low, nsPerPixel);
      const { isSparse } = lookAt(row, all);
      paintRow(whole, all, row, isSparse, PAINTS, false);
      for (const [x, width] of [[0, 7], [7, 1], [8, 52]]) {
        paintRow(parts, { ...all, x, width, low: low + x * nsPerPixel }, row, isSparse, PAINTS, false);
      }
      expect(parts.pixels).toEqual(whole.pixels);
    }
  });

  it("show an interval of no length", () => {
    const picture = blank(10);
    paint(picture, lane(10, 0, 1), [[5, 5, 0]]);
    expect(picture.pixels[5 * 10 + 5]).not.toBe(0);
  });
});

describe("the palette", () => {
  it("gives pale colours an edge that shows", () => {
    const paint = paintOf([240, 228, 66], [255, 255, 255], [0, 0, 0], false);
    const edge: [number, number, number] = [paint.edge & 255, (paint.edge >> 8) & 255, (paint.edge >> 16) & 255];
    expect(contrast(edge, [255, 255, 255])).toBeGreaterThanOrEqual(3);
    expect(packed([1, 2, 3])).toBe(0xff030201);
  });
});

describe("names", () => {
  it("lose their middle", () => {
    expect(middleCut("abcdefgh", 4)).toBe("ab\u2026gh");
    expect(middleCut("abc", 5)).toBe("abc");
  });
});

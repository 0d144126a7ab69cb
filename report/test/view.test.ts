import { describe, expect, it } from "vitest";
import { extent, moment, stepOver, ticks } from "../src/timeline/axis";
import { View } from "../src/timeline/view";

describe("the view", () => {
  it("zooms about a moment and stays within the whole", () => {
    const view = new View(1000);
    view.zoom(250, 0.5);
    expect([view.low, view.high]).toEqual([125, 625]);
    view.zoom(125, 4);
    expect([view.low, view.high]).toEqual([0, 1000]);
  });

  it("pans to the ends and no further", () => {
    const view = new View(1000);
    view.set(100, 300);
    view.pan(-500);
    expect([view.low, view.high]).toEqual([0, 200]);
    view.pan(5000);
    expect([view.low, view.high]).toEqual([800, 1000]);
  });

  it("gives an interval room on both sides", () => {
    const view = new View(1_000_000);
    view.focus(5000, 6000);
    expect([view.low, view.high]).toEqual([4000, 7000]);
  });
});

describe("the axis", () => {
  it("steps by 1, 2, 5", () => {
    expect([1.1, 3, 7, 0.2].map(stepOver)).toEqual([2, 5, 10, 1]);
  });

  it("keeps one unit and tells ticks apart", () => {
    expect(ticks(0, 2e9, 440).map((tick) => tick.label)).toEqual(["0.0 s", "0.5 s", "1.0 s", "1.5 s"]);
    const near = ticks(1_234_500_000, 1_234_504_000, 880).map((tick) => tick.label);
    expect(new Set(near).size).toBe(near.length);
    expect(near[0]).toBe("1,234.5000 ms");
  });

  it("says moments in the unit that needs few digits", () => {
    expect(moment(1_204_500_000, 100_000)).toBe("1,204.5 ms");
    expect(extent(0, 2e9, 2e9)).toBe("all of 2 s");
  });
});

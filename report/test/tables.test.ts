// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { bytes, count, figures, percent, time } from "../src/page/format";
import { pointsOf, scale } from "../src/tables/roofline";
import { compareKeys, wireTables } from "../src/tables/sortable";
import { bandwidth, grouped, searched, tflops, workOf } from "../src/tables/work";
import { h } from "../src/page/dom";
import { Explorer } from "../src/tables/explorer";
import { pageOf } from "./rows";

const COLUMNS = ["kind", "name", "op", "shape", "module", "line", "n", "total_ns", "self_ns", "max_ns", "flops", "bytes"];
const NAMES = ["gemm", "<img src=x onerror=alert(1)>", "aten::mm", "[8, 8]", "layer.0", "train.py:4"];
const ROWS = [
  ["kernel", 0, 2, 3, 4, 5, 10, 1000, 1000, 200, 5e6, 1e5],
  ["kernel", 0, 2, -1, 4, 5, 5, 3000, 3000, 900, 5e6, 1e5],
  ["kernel", 1, -1, -1, -1, -1, 1, 9000, 9000, 9000, null, null],
];
const WORK = { columns: COLUMNS, rows: ROWS, n_all: 7 };

function table(): HTMLTableElement {
  const cells = [["b", "2"], ["a", "10"], ["c", ""]].map(([name, v]) => h("tr", {}, h("td", {}, name), h("td", { "data-v": v }, v)));
  const head = h("thead", {}, h("tr", {}, h("th", {}, "name"), h("th", {}, "time")));
  const one = h("table", { class: "sortable", "data-search": "", "data-rows": "2" }, head, h("tbody", {}, ...cells));
  document.body.replaceChildren(one);
  wireTables(document);
  return one;
}

const rowsOf = (one: HTMLTableElement) => [...one.querySelectorAll<HTMLElement>("tbody tr")];
const shown = (one: HTMLTableElement) => rowsOf(one).map((row) => row.children[0].textContent);

describe("tables of the page", () => {
  it("sort numbers from the largest, text from A, nothing last", () => {
    const one = table();
    const [name, value] = one.querySelectorAll<HTMLElement>("th button");
    value.click();
    expect(shown(one)).toEqual(["a", "b", "c"]);
    expect(value.parentElement?.getAttribute("aria-sort")).toBe("descending");
    value.click();
    expect(shown(one)).toEqual(["b", "a", "c"]);
    name.click();
    expect(shown(one)).toEqual(["a", "b", "c"]);
    expect(value.parentElement?.hasAttribute("aria-sort")).toBe(false);
  });

  it("show the first rows until all are asked for, and what a search finds", () => {
    const one = table();
    expect([...one.querySelectorAll("tr.more")].length).toBe(1);
    const more = document.querySelector<HTMLButtonElement>(".table-more button");
    expect(more?.textContent).toBe("show all 3");
    more?.click();
    expect(one.querySelectorAll("tr.more").length).toBe(0);
    const search = document.querySelector<HTMLInputElement>(".table-search input");
    if (search) search.value = "C";
    search?.dispatchEvent(new Event("input"));
    expect(rowsOf(one).filter((row) => !row.hidden).length).toBe(1);
  });

  it("keep empty cells last in both directions", () => {
    expect([3, "", 1].sort((a, b) => compareKeys(a, b, -1))).toEqual([3, 1, ""]);
    expect([3, "", 1].sort((a, b) => compareKeys(a, b, 1))).toEqual([1, 3, ""]);
  });
});

describe("kernels and operators", () => {
  const rows = workOf(WORK, NAMES);

  it("are summed by group; rates are not known where a part is not", () => {
    const [gemm, other] = grouped(rows, "name");
    expect([gemm.n, gemm.total, gemm.most, gemm.shape]).toEqual([15, 4000, 900, ""]);
    expect([tflops(gemm), bandwidth(gemm)]).toEqual([2.5, 50]);
    expect([tflops(other), bandwidth(other)]).toEqual([null, null]);
    const [all] = grouped(rows.map((row) => ({ ...row, module: "m" })), "module");
    expect([all.total, all.flops, all.nameIndex]).toEqual([13000, null, -1]);
  });

  it("are found by name, shape, module, line or operator", () => {
    expect(searched(rows, "TRAIN.py:4").length).toBe(2);
    expect(searched(rows, "onerror").length).toBe(1);
  });

  it("stand on the roofline where flops and bytes are known", () => {
    const [point, ...rest] = pointsOf(rows);
    expect([point.ratio, point.rate, point.share, rest.length]).toEqual([50, 2.5e12, 1, 0]);
    const { at, powers } = scale(2, 300, 0, 30);
    expect(powers).toEqual([1, 10, 100, 1000]);
    expect([1, 10, 1000].map((x) => Math.round(at(x)))).toEqual([0, 10, 30]);
  });

  it("are a table of text, links and numbers", () => {
    const data = pageOf([{ rank: 0, names: NAMES, window: [0, 20_000], rows: [] }]);
    data.ranks[0].meta.work = WORK;
    const mount = h("div", {}, h("p", { class: "static" }, "top 20"));
    new Explorer(mount, data);
    const lines = [...mount.querySelectorAll("tbody tr")].map((row) => row.textContent);
    expect(lines[0]).toContain("<img src=x onerror=alert(1)>");
    expect(mount.querySelector("img")).toBeNull();
    expect(mount.querySelector("tbody a")?.getAttribute("href")).toBe("#name=1&rank=0");
    expect(mount.querySelector(".ex-foot")?.textContent).toContain("The page holds the 3 longest of 7");
    expect(mount.querySelector(".static")?.classList.contains("replaced")).toBe(true);
  });
});

describe("numbers", () => {
  it("have three figures and the unit in which they are at least one", () => {
    expect([12_345_678, 999_600, 999.6, 0, 5e9].map(time)).toEqual(["12.3 ms", "1 ms", "1 us", "0 ns", "5 s"]);
    expect([1234, 0.01234, 100].map(figures)).toEqual(["1,234", "0.0123", "100"]);
    expect([bytes(5.5 * 2 ** 30), bytes(0)]).toEqual(["5.5 GiB", "0 B"]);
    expect([percent(0.2051), percent(0.0001), percent(0), count(1234567)]).toEqual(["20.5 %", "< 0.1 %", "0.0 %", "1,234,567"]);
  });
});

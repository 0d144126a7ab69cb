/** The table of kernels and operators: search, sort, groups; rows are made as they are asked for. */

import { button, h, hideStatic, on } from "../page/dom";
import { count, figures, percent, time } from "../page/format";
import type { PageData, RankData } from "../data/row";
import { compareKeys, type Key } from "./sortable";
import { bandwidth, grouped, GROUPS, searched, tflops, workOf, type Group, type Work } from "./work";

const PAGE = 50;
const KINDS: Record<string, string> = { kernel: "kernels", operator: "operators", copy: "copies", comm: "collectives" };
const GROUP_WORDS: Record<Group | "none", string> = {
  none: "do not group",
  name: "by name",
  shape: "by shape",
  module: "by module",
  line: "by line",
  op: "by operator",
};

interface Column {
  title: string;
  key: (row: Work) => Key;
  text: (row: Work) => string;
  isText?: boolean;
}

function known(value: number | null): string {
  return value === null ? "" : figures(value);
}

/** The columns for one kind of rows; a text column that no row fills is left out. */
function columnsFor(rank: RankData, kind: string, rows: Work[]): Column[] {
  const isHost = kind === "operator";
  const words: [Group, string][] = [["name", "name"], ["op", "operator"], ["shape", "shape"], ["module", "module"], ["line", "line"]];
  const texts = words
    .filter(([column]) => column === "name" || rows.some((row) => row[column] !== "" && row[column] !== row.name))
    .map(([column, title]): Column => ({ title, key: (row) => row[column], text: (row) => row[column], isText: true }));
  const share = (row: Work): number => (isHost ? row.self : row.total) / Math.max(1, rank.length);
  const numbers: (Column | null)[] = [
    { title: "calls", key: (row) => row.n, text: (row) => count(row.n) },
    { title: "total", key: (row) => row.total, text: (row) => time(row.total) },
    isHost ? { title: "self", key: (row) => row.self, text: (row) => time(row.self) } : null,
    { title: isHost ? "self / window" : "share of window", key: share, text: (row) => percent(share(row)) },
    { title: "mean", key: (row) => row.total / row.n, text: (row) => time(row.total / row.n) },
    { title: "max", key: (row) => row.most, text: (row) => time(row.most) },
    rows.some((row) => row.flops !== null)
      ? { title: "TFLOP/s", key: (row) => tflops(row) ?? "", text: (row) => known(tflops(row)) }
      : null,
    rows.some((row) => row.bytes !== null)
      ? { title: "GB/s", key: (row) => bandwidth(row) ?? "", text: (row) => known(bandwidth(row)) }
      : null,
  ];
  return [...texts, ...numbers.filter((column) => column !== null)];
}

function select(label: string, options: [string, string][], act: (value: string) => void): HTMLLabelElement {
  const element = h("select", {}, ...options.map(([value, text]) => h("option", { value }, text)));
  on(element, "change", () => act(element.value));
  return h("label", {}, `${label} `, element);
}

export class Explorer {
  #rank: RankData;
  #work: Work[] = [];
  #kind = "";
  #group: Group | "none" = "none";
  #wanted = "";
  #sorted = { title: "", direction: -1 as 1 | -1 };
  #shown = PAGE;
  readonly #bar = h("div", { class: "ex-bar" });
  readonly #table = h("table", { class: "ex-table" });
  readonly #foot = h("p", { class: "ex-foot" });

  constructor(
    mount: HTMLElement,
    private readonly data: PageData,
  ) {
    hideStatic(mount);
    this.#rank = data.ranks.find((rank) => rank.meta.work.rows.length > 0) ?? data.ranks[0];
    mount.append(h("div", { class: "ex" }, this.#bar, h("div", { class: "ex-scroll" }, this.#table), this.#foot));
    this.#take(this.#rank);
  }

  #take(rank: RankData): void {
    this.#rank = rank;
    this.#work = workOf(rank.meta.work, rank.meta.names);
    const kinds = Object.keys(KINDS).filter((kind) => this.#work.some((row) => row.kind === kind));
    if (!kinds.includes(this.#kind)) this.#kind = kinds[0] ?? "";
    this.#drawBar(kinds);
    this.#draw();
  }

  #drawBar(kinds: string[]): void {
    const search = h("input", { type: "search", placeholder: "search", "aria-label": "search kernels and operators" });
    search.value = this.#wanted;
    on(search, "input", () => {
      this.#wanted = search.value;
      this.#shown = PAGE;
      this.#draw();
    });
    const redraw = (): void => {
      this.#shown = PAGE;
      this.#draw();
    };
    const parts: HTMLElement[] = [search];
    if (kinds.length > 1) {
      const options = kinds.map((kind): [string, string] => [kind, KINDS[kind]]);
      parts.push(select("show", options, (kind) => ((this.#kind = kind), redraw())));
    }
    const groups = (["none", ...GROUPS] as const).map((group): [string, string] => [group, GROUP_WORDS[group]]);
    const group = select("group", groups, (value) => ((this.#group = value as Group | "none"), redraw()));
    parts.push(group);
    const ranks = this.data.ranks.filter((rank) => rank.meta.work.rows.length > 0);
    if (ranks.length > 1) {
      const options = ranks.map((rank): [string, string] => [String(rank.index), rank.title || `rank ${rank.index}`]);
      parts.push(select("rank", options, (index) => this.#take(this.data.ranks[Number(index)])));
    }
    for (const one of parts) for (const box of one.querySelectorAll("select")) this.#keep(box);
    this.#bar.replaceChildren(...parts);
  }

  /** A box that is drawn again shows what was chosen. */
  #keep(box: HTMLSelectElement): void {
    for (const value of [this.#kind, this.#group, String(this.#rank.index)]) {
      if ([...box.options].some((option) => option.value === value)) box.value = value;
    }
  }

  #rows(): Work[] {
    const ofKind = this.#work.filter((row) => row.kind === this.#kind);
    const found = searched(ofKind, this.#wanted);
    return this.#group === "none" ? found : grouped(found, this.#group);
  }

  #draw(): void {
    const rows = this.#rows();
    const columns = columnsFor(this.#rank, this.#kind, rows);
    // Operators hold others: their totals count time twice, their own time does not.
    const usual = columns.find((column) => column.title === "self") ?? columns.find((column) => column.title === "total");
    const by = columns.find((column) => column.title === this.#sorted.title) ?? usual ?? columns[0];
    this.#sorted.title = by.title;
    const keys = new Map(rows.map((row) => [row, by.key(row)]));
    rows.sort((a, b) => compareKeys(keys.get(a) ?? "", keys.get(b) ?? "", this.#sorted.direction));
    const body = h("tbody", {}, ...rows.slice(0, this.#shown).map((row) => this.#line(row, columns)));
    this.#table.replaceChildren(this.#head(columns), body);
    this.#drawFoot(rows);
  }

  #head(columns: Column[]): HTMLElement {
    const cells = columns.map((column) => {
      const isBy = column.title === this.#sorted.title;
      const sort = button(column.title, `sort by ${column.title}`, () => {
        const direction = isBy ? (-this.#sorted.direction as 1 | -1) : column.isText ? 1 : -1;
        this.#sorted = { title: column.title, direction };
        this.#draw();
        this.#table.querySelector<HTMLElement>("th[aria-sort] button")?.focus();
      });
      sort.className = "sort";
      const cell = h("th", { scope: "col", class: column.isText ? "" : "num" }, sort);
      if (isBy) cell.setAttribute("aria-sort", this.#sorted.direction === 1 ? "ascending" : "descending");
      return cell;
    });
    return h("thead", {}, h("tr", {}, ...cells));
  }

  #line(row: Work, columns: Column[]): HTMLElement {
    const label = row.rows > 1 && row.name === "" ? `(${count(row.rows)} rows)` : row.name;
    const cells = columns.map((column) => {
      if (column.title !== "name") {
        return h("td", { class: column.isText ? "ex-text" : "num", title: column.isText ? column.text(row) : "" }, column.text(row));
      }
      const rank = encodeURIComponent(this.data.linkOf(this.#rank));
      const link = row.nameIndex < 0 ? label : h("a", { class: "see", href: `#name=${row.nameIndex}&rank=${rank}` }, label);
      return h("td", { class: "ex-text", title: label }, link);
    });
    return h("tr", {}, ...cells);
  }

  #drawFoot(rows: Work[]): void {
    const { n_all: all, rows: held } = this.#rank.meta.work;
    const words = [`${count(Math.min(this.#shown, rows.length))} of ${count(rows.length)} rows.`];
    if (all > held.length) words.push(`The page holds the ${count(held.length)} longest of ${count(all)}; sums are over these.`);
    const parts: (HTMLElement | string)[] = [words.join(" "), " "];
    if (rows.length > this.#shown) {
      const show = (n: number) => (): void => {
        this.#shown = n;
        this.#draw();
      };
      parts.push(button("show 100 more", "show 100 more", show(this.#shown + 100)), " ");
      parts.push(button("show all", "show all", show(Infinity)));
    }
    this.#foot.replaceChildren(...parts);
  }
}

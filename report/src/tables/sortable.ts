/** Tables of the page: headers that sort, a search box, "show all". */

import { button, h, on } from "../page/dom";
import { count } from "../page/format";

/** What a cell is compared by: a number where it has one, else its text. */
export type Key = number | string;

export function keyOf(cell: HTMLElement | undefined): Key {
  const raw = cell?.dataset.v ?? cell?.textContent?.trim() ?? "";
  const number = raw === "" ? NaN : Number(raw.replace(/,/g, ""));
  return Number.isNaN(number) ? raw : number;
}

/** Numbers before text, text by the reader's alphabet, nothing last in both directions. */
export function compareKeys(a: Key, b: Key, direction: 1 | -1): number {
  if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return direction * (a - b);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return direction * String(a).localeCompare(String(b), undefined, { numeric: true });
}

const SHOWN = 40;

class Table {
  readonly #body: HTMLTableSectionElement;
  readonly #rows: HTMLTableRowElement[];
  readonly #most: number;
  readonly #more = button("", "show every row", () => this.#showAll());
  #isAll = false;
  #wanted = "";

  constructor(private readonly table: HTMLTableElement) {
    this.#body = table.tBodies[0];
    this.#rows = [...this.#body.querySelectorAll("tr")];
    this.#most = Number(table.dataset.rows ?? SHOWN);
    for (const cell of table.querySelectorAll<HTMLElement>("thead tr:last-child > *")) this.#wireHead(cell);
    if ("search" in table.dataset) this.#addSearch();
    const foot = h("p", { class: "table-more" }, this.#more);
    table.after(foot);
    this.#show();
  }

  #wireHead(cell: HTMLElement): void {
    if ((cell.textContent ?? "").trim() === "" || "nosort" in cell.dataset) return;
    const inner = h("button", { type: "button", class: "sort" });
    inner.append(...cell.childNodes);
    cell.append(inner);
    on(inner, "click", () => this.#sort(cell));
  }

  #sort(cell: HTMLElement): void {
    const heads = [...(cell.parentElement?.children ?? [])];
    const column = heads.indexOf(cell);
    const keys = new Map(this.#rows.map((row) => [row, keyOf(row.children[column] as HTMLElement | undefined)]));
    const isNumeric = [...keys.values()].some((key) => typeof key === "number");
    const now = cell.getAttribute("aria-sort");
    // Numbers begin with the largest, text with A.
    const direction = now === null ? (isNumeric ? -1 : 1) : now === "ascending" ? -1 : 1;
    for (const other of heads) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    this.#rows.sort((a, b) => compareKeys(keys.get(a) ?? "", keys.get(b) ?? "", direction));
    this.#body.append(...this.#rows);
    this.#show();
  }

  #addSearch(): void {
    const input = h("input", { type: "search", placeholder: "search this table", "aria-label": "search this table" });
    on(input, "input", () => {
      this.#wanted = input.value.trim().toLowerCase();
      this.#show();
    });
    this.table.before(h("p", { class: "table-search" }, input));
  }

  #showAll(): void {
    this.#isAll = true;
    this.#show();
  }

  #show(): void {
    let n = 0;
    for (const row of this.#rows) {
      const isFound = this.#wanted === "" || (row.textContent ?? "").toLowerCase().includes(this.#wanted);
      row.hidden = !isFound;
      if (isFound) n++;
      row.classList.toggle("more", isFound && !this.#isAll && n > this.#most);
    }
    this.#more.hidden = this.#isAll || n <= this.#most;
    this.#more.textContent = `show all ${count(n)}`;
  }
}

export function wireTables(root: ParentNode): void {
  for (const table of root.querySelectorAll<HTMLTableElement>("table.sortable")) {
    if (table.tBodies.length > 0) new Table(table);
  }
}

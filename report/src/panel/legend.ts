/** What the colours mean: the categories that occur on the page, each a link to all its intervals in the budget. */

import { h } from "../page/dom";
import type { PageData } from "../data/row";
import type { Stage } from "../timeline/stage";

/** Categories with an interval in a row of such a role. */
function seen(data: PageData, isWanted: (role: string) => boolean): Set<number> {
  const found = new Set<number>();
  for (const rank of data.ranks) {
    for (const row of rank.rows) if (isWanted(row.meta.role)) for (const category of row.category) found.add(category);
  }
  return found;
}

export function legend(data: PageData, stage: Stage): { element: HTMLElement; paint(): void } {
  const parts = seen(data, (role) => role === "budget");
  const all = [...seen(data, () => true)].sort((a, b) => a - b);
  const boxes = all.map((category) => [h("span", { class: "tl-box" }), category] as const);
  const entries = boxes.map(([box, category]) => {
    const name = data.meta.categories[category];
    const label = data.label(category);
    return h("li", {}, box, parts.has(category) ? h("a", { href: `#part=${name}` }, label) : label);
  });
  const paint = (): void => {
    for (const [box, category] of boxes) {
      box.style.background = stage.palette.paints[category].css;
      box.style.borderColor = stage.palette.muted;
    }
  };
  return { element: h("ul", { class: "tl-legend", "aria-label": "colours" }, ...entries), paint };
}

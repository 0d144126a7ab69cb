/** Links that move the timeline, and the way back. */

import { isCalm, on } from "../page/dom";
import type { RankData } from "../data/row";
import { ofCategory, ofName, ofProof, ofStretch, type Highlight } from "./highlight";
import type { Timeline } from "../panel/mount";
import { parseHash, type Ask } from "./hash";

interface Kept {
  low: number;
  high: number;
}

export class Router {
  constructor(
    private readonly timeline: Timeline,
    private readonly mount: HTMLElement,
  ) {
    on(document, "click", (event: MouseEvent) => this.#clicked(event));
    on(window, "popstate", (event: PopStateEvent) => this.#moved(event.state as { timeline?: Kept } | null));
    if (parseHash(location.hash)) this.#follow(true);
  }

  /** The reader let go: the address points at nothing any more. */
  letGo(): void {
    if (!parseHash(location.hash)) return;
    try {
      history.replaceState(history.state, "", location.pathname + location.search);
    } catch {
      // Some browsers hold the address of a file fast; nothing is lost.
    }
  }

  #clicked(event: MouseEvent): void {
    const link = event.target instanceof Element ? event.target.closest("a[href^='#']") : null;
    const href = link?.getAttribute("href") ?? "";
    if (!parseHash(href) || event.defaultPrevented || event.button !== 0) return;
    const { low, high } = this.timeline.state.view;
    try {
      history.replaceState({ timeline: { low, high } }, "");
    } catch {
      // Then the way back shows everything.
    }
    // The same address again changes nothing for the browser, but the reader may have moved on.
    if (href === location.hash) {
      event.preventDefault();
      this.#follow(true);
    }
  }

  #moved(kept: { timeline?: Kept } | null): void {
    // A new entry has no state yet; one that was left has the view from which it was left.
    this.#follow(kept === null);
    if (!kept?.timeline) return;
    this.timeline.state.show(kept.timeline.low, kept.timeline.high);
  }

  #follow(isScrolling: boolean): void {
    const ask = parseHash(location.hash);
    const { state } = this.timeline;
    if (!ask) {
      if (state.highlight) {
        state.selected = null;
        state.point(null);
      }
      return;
    }
    const found = this.#find(ask);
    state.point(found);
    if (!found) return;
    const line = found.rows[0] && state.layout.lineOf(found.rows[0]);
    if (line) this.timeline.stage.reveal(line);
    if (isScrolling) this.mount.scrollIntoView({ block: "start", behavior: isCalm() ? "auto" : "smooth" });
  }

  #find(ask: Ask): Highlight | null {
    const { data } = this.timeline.state;
    const rank: RankData | null = ask.rank === null ? null : data.rankNamed(ask.rank);
    const first = rank ?? data.ranks[0];
    if (!first) return null;
    if (ask.kind === "see") return ofProof(data, rank, ask.key);
    if (ask.kind === "name") return ofName(first, ask.index);
    if (ask.kind === "time") return ofStretch(first, ask.low, ask.high);
    return ofProof(data, rank, `part:${ask.part}`) ?? ofCategory(data, first, ask.part);
  }
}

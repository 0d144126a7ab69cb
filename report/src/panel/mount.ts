/** The timeline put into its place on the page. */

import { h, hideStatic, on } from "../page/dom";
import type { PageData } from "../data/row";
import { Keys } from "../timeline/keys";
import { Minimap } from "../timeline/minimap";
import { PointerInput } from "../timeline/pointer";
import { Stage } from "../timeline/stage";
import { State } from "../timeline/state";
import { Details } from "./details";
import { legend } from "./legend";
import { Toolbar } from "./toolbar";
import { Tooltip } from "./tooltip";

const LABEL = "Timeline: W A S D and arrows move and zoom, ? lists the keys";

export interface Timeline {
  state: State;
  stage: Stage;
  /** The theme changed. */
  retheme(): void;
}

/** Builds the timeline in `mount`; `letGo` is called when the reader lets go of what a link pointed at. */
export function mountTimeline(mount: HTMLElement, data: PageData, letGo: () => void): Timeline {
  const state = new State(data);
  const stage = new Stage(state);
  const toolbar = new Toolbar(state);
  const clear = (): void => {
    toolbar.reset();
    state.selected = state.measured = null;
    state.point(null);
    letGo();
  };
  const details = new Details(stage, clear);
  const tooltip = new Tooltip(stage);
  const pointer = new PointerInput(stage, () => tooltip.show(pointer));
  const minimap = new Minimap(stage);
  stage.element.setAttribute("aria-label", LABEL);
  on(stage.element, "focus", () => stage.ask(false));
  on(stage.element, "blur", () => stage.ask(false));
  const key = legend(data, stage);
  hideStatic(mount);
  const place = h("div", { class: "tl-place" }, stage.element, tooltip.element);
  const root = h("div", { class: "tl" }, toolbar.element, details.pointed, minimap.canvas, place, details.element, key.element, details.live, toolbar.help);
  mount.append(root);
  new Keys(stage, {
    search: () => {
      root.scrollIntoView({ block: "nearest" });
      toolbar.search.focus();
    },
    help: () => toolbar.showHelp(),
    clear,
  });
  stage.start();
  const retheme = (): void => {
    stage.retheme();
    key.paint();
    state.changed("said");
  };
  key.paint();
  return { state, stage, retheme };
}

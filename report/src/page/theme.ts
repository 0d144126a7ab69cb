/** Light, dark or as the system says; remembered where the browser lets a page remember. */

import { h, on } from "./dom";

const KEY = "profkit-theme";
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

function remembered(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return THEMES.find((theme) => theme === found) ?? "system";
  } catch {
    return "system";
  }
}

function remember(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A page from a file may have no storage: the choice lasts as long as the page.
  }
}

function apply(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Fills `mount` with the switch; `changed` is called when colours are others now. */
export function wireTheme(mount: HTMLElement | null, changed: () => void): void {
  const now = remembered();
  apply(now);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  if (!mount) return;
  const select = h("select", { "aria-label": "theme" });
  for (const theme of THEMES) select.append(h("option", { value: theme }, theme));
  select.value = now;
  on(select, "change", () => {
    const theme = THEMES.find((one) => one === select.value) ?? "system";
    apply(theme);
    remember(theme);
    changed();
  });
  mount.replaceChildren(select);
}

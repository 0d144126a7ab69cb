/** Copying text, also where a page from a file has no clipboard. */

import { h, on } from "./dom";

/** Puts the text on the clipboard; false where the browser will not. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByHand(text);
  }
}

/** The way before there was a clipboard to write to: select a text, ask for a copy. */
function copyByHand(text: string): boolean {
  const area = h("textarea", { class: "off-screen", "aria-hidden": "true", readonly: "" });
  area.value = text;
  document.body.append(area);
  const had = document.activeElement;
  area.select();
  let isDone = false;
  try {
    isDone = document.execCommand("copy");
  } catch {
    // The reader still has the text on screen.
  }
  area.remove();
  if (had instanceof HTMLElement) had.focus({ preventScroll: true });
  return isDone;
}

const SHOWN_FOR = 1600; // ms

/** Makes each `[data-copy-from]` a button that copies. */
export function wireCopies(root: ParentNode): void {
  for (const element of root.querySelectorAll<HTMLElement>("[data-copy-from]")) {
    const source = document.querySelector(element.dataset.copyFrom ?? "");
    if (!source) continue;
    const label = element.textContent || "copy";
    if (!element.textContent) element.textContent = label;
    element.hidden = false;
    on(element, "click", () => {
      void copyText((source.textContent ?? "").trim()).then((isDone) => {
        element.textContent = isDone ? "copied" : "press Ctrl+C";
        setTimeout(() => (element.textContent = label), SHOWN_FOR);
      });
    });
  }
}

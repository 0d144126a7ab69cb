/** Elements made of text, never of markup. */

export type Child = Node | string;

/** An element with attributes and children; strings become text. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Listens; `E` is the event that the type brings. */
export function on<E extends Event>(target: EventTarget, type: string, act: (event: E) => void, options?: AddEventListenerOptions): void {
  target.addEventListener(type, act as EventListener, options);
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function button(label: string, title: string, act: () => void): HTMLButtonElement {
  const element = h("button", { type: "button", title }, label);
  on(element, "click", act);
  return element;
}

/** Whether keys pressed here are meant as text. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function isCalm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Hides what stands in the place for readers without scripts. */
export function hideStatic(mount: HTMLElement): void {
  for (const element of mount.querySelectorAll<HTMLElement>(":scope > .static")) element.classList.add("replaced");
}

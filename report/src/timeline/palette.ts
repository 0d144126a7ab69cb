/** Colours of the page's theme, as numbers that an ImageData takes. */

export type Rgb = [number, number, number];

const UNNAMED: Rgb = [136, 136, 136]; // where the page's style has no colour for a category
const HATCHED = new Set(["idle_unknown", "idle_dependency", "wait"]);

/** How one category is drawn; packed as an ImageData's bytes lie in memory. */
export interface Paint {
  fill: number;
  edge: number;
  hatch: number;
  faded: number;
  css: string;
  /** What text on it is drawn with. */
  text: string;
}

export interface Palette {
  paints: Paint[];
  ground: Rgb;
  text: string;
  groundCss: string;
  muted: string;
  line: string;
  grid: number;
  /** Under a curve. */
  area: number;
}

export function packed([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

export function mixed(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i] * (1 - share) + b[i] * share)) as Rgb;
}

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((byte) => {
    const x = byte / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The contrast of two colours as WCAG counts it: 1 to 21. */
export function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

const LEAST_CONTRAST = 3; // WCAG 2.2, 1.4.11: parts of a graphic against what is beside them

export function paintOf(colour: Rgb, ground: Rgb, text: Rgb, isHatched: boolean): Paint {
  let edge = colour;
  for (let share = 0.1; contrast(edge, ground) < LEAST_CONTRAST && share <= 1; share += 0.1) edge = mixed(colour, text, share);
  const isDark = contrast(colour, [255, 255, 255]) >= 4.5;
  return {
    fill: packed(colour),
    edge: packed(edge),
    hatch: packed(isHatched ? mixed(colour, ground, 0.3) : colour),
    faded: packed(mixed(colour, ground, 0.78)),
    css: css(colour),
    text: isDark ? "#fff" : "#000",
  };
}

/** Turns any colour of CSS into bytes by drawing it. */
class Reader {
  readonly #context: CanvasRenderingContext2D | null;

  constructor() {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    this.#context = canvas.getContext("2d", { willReadFrequently: true });
  }

  read(colour: string, or: Rgb): Rgb {
    if (!this.#context || colour === "") return or;
    this.#context.clearRect(0, 0, 1, 1);
    this.#context.fillStyle = css(or);
    this.#context.fillStyle = colour;
    this.#context.fillRect(0, 0, 1, 1);
    const [r, g, b, alpha] = this.#context.getImageData(0, 0, 1, 1).data;
    return alpha < 128 ? or : [r, g, b];
  }
}

function groundOf(element: Element | null, reader: Reader): Rgb {
  for (let at = element; at; at = at.parentElement) {
    const found = reader.read(getComputedStyle(at).backgroundColor, [-1, -1, -1]);
    if (found[0] >= 0) return found;
  }
  return [255, 255, 255];
}

/** The palette of the theme under which `element` is shown now. */
export function paletteOf(categories: string[], element: Element): Palette {
  const reader = new Reader();
  const style = getComputedStyle(element);
  const ground = groundOf(element, reader);
  const text = reader.read(style.color, [0, 0, 0]);
  const paints = categories.map((name) => {
    const colour = reader.read(style.getPropertyValue(`--c-${name}`).trim(), UNNAMED);
    return paintOf(colour, ground, text, HATCHED.has(name));
  });
  const first = reader.read(paints[0].css, [0, 114, 178]);
  return {
    paints,
    area: packed(mixed(first, ground, 0.72)),
    ground,
    text: css(text),
    groundCss: css(ground),
    muted: css(mixed(text, ground, 0.35)),
    line: css(mixed(text, ground, 0.82)),
    grid: packed(mixed(text, ground, 0.88)),
  };
}

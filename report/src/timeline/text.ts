/** Names cut to fit: the middle goes, the ends stay. */

export interface Ruler {
  measureText(text: string): { width: number };
}

const DOTS = "\u2026";
const MOST_KEPT = 20_000;
const LEAST_LETTERS = 6; // fewer of a name tell it from no other

export class Labels {
  readonly #widths = new Map<string, number>();
  readonly #cut = new Map<string, string>();

  constructor(private readonly ruler: Ruler) {}

  /** Forgets what was measured with another font. */
  clear(): void {
    this.#widths.clear();
    this.#cut.clear();
  }

  width(text: string): number {
    let width = this.#widths.get(text);
    if (width === undefined) {
      if (this.#widths.size > MOST_KEPT) this.#widths.clear();
      width = this.ruler.measureText(text).width;
      this.#widths.set(text, width);
    }
    return width;
  }

  /** The text, or its ends with dots between, at most `room` wide; "" where too few letters fit. */
  fit(text: string, room: number): string {
    if (this.width(text) <= room) return text;
    const step = Math.floor(room / 6);
    const key = `${step}|${text}`;
    let short = this.#cut.get(key);
    if (short === undefined) {
      if (this.#cut.size > MOST_KEPT) this.#cut.clear();
      short = this.#shortened(text, step * 6);
      this.#cut.set(key, short);
    }
    return short;
  }

  #shortened(text: string, room: number): string {
    let [low, high] = [0, Math.min(text.length, 400)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.ruler.measureText(middleCut(text, middle)).width <= room) low = middle;
      else high = middle - 1;
    }
    return low < LEAST_LETTERS ? "" : middleCut(text, low);
  }
}

/** The first and last letters of the text, `n` in all. */
export function middleCut(text: string, n: number): string {
  if (n >= text.length) return text;
  const head = Math.ceil(n / 2);
  return text.slice(0, head) + DOTS + (n > head ? text.slice(head - n) : "");
}

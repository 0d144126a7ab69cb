/** The stretch of time on screen, in ns on the page's clock, kept within [0, length]. */

/** No view is shorter, in ns: below, pixels would say more than the trace knows. */
const SHORTEST = 40;

export class View {
  low = 0;
  high: number;

  constructor(readonly length: number) {
    this.high = length;
  }

  get width(): number {
    return this.high - this.low;
  }

  get isWhole(): boolean {
    return this.low <= 0 && this.high >= this.length;
  }

  /** Shows [low, high), moved and cut to what there is. */
  set(low: number, high: number): void {
    const width = Math.min(this.length, Math.max(SHORTEST, high - low));
    const middle = (low + high) / 2;
    this.low = Math.max(0, Math.min(this.length - width, middle - width / 2));
    this.high = this.low + width;
  }

  pan(ns: number): void {
    const to = Math.max(0, Math.min(this.length - this.width, this.low + ns));
    const width = this.width;
    this.low = to;
    this.high = to + width;
  }

  /** Makes the view `factor` times as long, with `t` where it is on screen. */
  zoom(t: number, factor: number): void {
    const width = Math.min(this.length, Math.max(SHORTEST, this.width * factor));
    const share = (t - this.low) / this.width;
    const low = Math.max(0, Math.min(this.length - width, t - share * width));
    this.low = low;
    this.high = low + width;
  }

  /** Shows [low, high) with room around it: a third of the view, and never more than is asked for of context. */
  focus(low: number, high: number): void {
    const width = Math.max(high - low, SHORTEST / 4);
    this.set(low - width, high + width);
  }
}

/** Marks of the time axis: 1, 2 or 5 x 10^n apart, and what stands beside them. */

import { grouped, time } from "../page/format";

const UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
  [1, "ns"],
];

/** The step of 1, 2, 5 x 10^n ns next above `least`; 1 ns at least. */
export function stepOver(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10;
  return Math.max(1, step * power);
}

export interface Tick {
  t: number;
  label: string;
}

/** Ticks in [low, high) that leave `wide` pixels between two, of `pixels` in all. */
export function ticks(low: number, high: number, pixels: number, wide = 110): Tick[] {
  const step = stepOver(((high - low) * wide) / Math.max(1, pixels));
  const first = Math.ceil(low / step);
  const out: Tick[] = [];
  for (let i = first; i * step < high; i++) out.push({ t: i * step, label: moment(i * step, step, high) });
  return out;
}

/** A moment with as many digits as tell it from the next one `step` ns later, in the unit of `most`: "1,204.5 ms". */
export function moment(t: number, step: number, most = Math.abs(t)): string {
  const largest = Math.max(most, step);
  const fitting = UNITS.filter(([scale], i) => largest >= scale || i === UNITS.length - 1);
  // Few digits on both sides of the point: "999.6 ms" rather than "0.9996 s", but no millions of ns.
  const short = fitting.find(([scale]) => step >= scale / 1e3 && largest < scale * 1e6);
  const finer = short ?? fitting.find(([scale]) => step >= scale / 1e6) ?? fitting[0];
  const [size, name] = finer;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${grouped((t / size).toFixed(digits))} ${name}`;
}

/** What a view shows, in words: "12.3 ms of 250 ms, from 40 ms". */
export function extent(low: number, high: number, length: number): string {
  if (low <= 0 && high >= length) return `all of ${time(length)}`;
  return `${time(high - low)} of ${time(length)}, from ${moment(low, (high - low) / 100)}`;
}

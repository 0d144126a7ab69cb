/** Numbers as the report writes them: three significant figures, and the unit. */

/** Three significant figures without an exponent: 0.0123, 12.3, 1,230. */
export function figures(x: number): string {
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(x)));
  const text = x.toFixed(Math.max(0, Math.min(12, 2 - size)));
  const shown = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return grouped(shown);
}

/** A comma every three digits of the whole part. */
export function grouped(text: string): string {
  const [whole, rest] = text.split(".");
  const with_commas = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? with_commas : `${with_commas}.${rest}`;
}

export function count(n: number): string {
  return grouped(String(Math.round(n)));
}

const TIMES: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
  [1, "ns"],
];

/** A duration in the unit in which it is at least 1: "12.3 ms". */
export function time(ns: number): string {
  const size = Math.abs(ns);
  // 999.6 us is 1 ms, not 1,000 us.
  const [scale, unit] = TIMES.find(([scale]) => size >= scale * 0.9995) ?? TIMES[TIMES.length - 1];
  return `${figures(ns / scale)} ${unit}`;
}

/** Every nanosecond: "12,345,678 ns". */
export function exact(ns: number): string {
  return `${ns < 0 ? "-" : ""}${count(Math.abs(ns))} ns`;
}

const BYTES: [number, string][] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];

export function bytes(n: number): string {
  const [scale, unit] = BYTES.find(([scale]) => Math.abs(n) >= scale) ?? BYTES[BYTES.length - 1];
  return `${figures(n / scale)} ${unit}`;
}

export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${value.toFixed(1)} %`;
}

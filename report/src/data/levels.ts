/** Levels of detail of a row: how much of each bucket of time each category covers. */

/** What a row must have for its levels to be built. */
export interface Intervals {
  start: Float64Array;
  end: Float64Array;
  category: Uint8Array;
  n: number;
}

/** One level: `share[k * n + i]` is the share (0 to 255) of bucket `i` that category `categories[k]` covers. */
export interface Level {
  /** Length of a bucket in ns. */
  width: number;
  n: number;
  share: Uint8Array;
}

/** Levels from fine to coarse; bucket 0 starts at `low`. */
export interface Levels {
  low: number;
  categories: number[];
  levels: Level[];
}

const MOST_BUCKETS = 2 ** 16;
const LEAST_BUCKETS = 2 ** 9;

/** The categories in the row, in their order. */
function categoriesOf(row: Intervals): number[] {
  const seen = new Uint8Array(256);
  for (let i = 0; i < row.n; i++) seen[row.category[i]] = 1;
  return [...seen.keys()].filter((category) => seen[category] === 1);
}

/** ns of each category in each bucket, as shares of `width`. */
function finest(row: Intervals, low: number, width: number, n: number, place: Int32Array, kinds: number): Level {
  const sum = new Float32Array(n * kinds);
  for (let i = 0; i < row.n; i++) {
    const base = place[row.category[i]] * n;
    const from = (row.start[i] - low) / width;
    const to = Math.min(n, (row.end[i] - low) / width);
    const first = Math.floor(from);
    const last = Math.min(n - 1, Math.floor(to));
    if (first >= last) {
      sum[base + Math.min(first, n - 1)] += to - from;
      continue;
    }
    sum[base + first] += first + 1 - from;
    for (let bucket = first + 1; bucket < last; bucket++) sum[base + bucket] = 1;
    sum[base + last] += to - last;
  }
  const share = new Uint8Array(sum.length);
  // What is there stays visible: no share above nothing is rounded to nothing.
  for (let i = 0; i < sum.length; i++) share[i] = sum[i] > 0 ? Math.max(1, Math.min(255, Math.round(sum[i] * 255))) : 0;
  return { width, n, share };
}

function halved(level: Level, kinds: number): Level {
  const n = level.n >> 1;
  const share = new Uint8Array(n * kinds);
  for (let k = 0; k < kinds; k++) {
    for (let i = 0; i < n; i++) {
      const at = k * level.n + 2 * i;
      share[k * n + i] = (level.share[at] + level.share[at + 1] + 1) >> 1;
    }
  }
  return { width: level.width * 2, n, share };
}

/** All levels of a row: a bucket for every four intervals or fewer, halved down to 512. */
export function levelsOf(row: Intervals): Levels {
  const categories = categoriesOf(row);
  const place = new Int32Array(256);
  categories.forEach((category, k) => (place[category] = k));
  const low = row.n > 0 ? row.start[0] : 0;
  const length = row.n > 0 ? Math.max(1, row.end[row.n - 1] - low) : 1;
  const wanted = 2 ** Math.ceil(Math.log2(Math.max(1, row.n / 4)));
  const n = Math.max(LEAST_BUCKETS, Math.min(MOST_BUCKETS, wanted));
  const levels = [finest(row, low, length / n, n, place, categories.length)];
  while (levels[levels.length - 1].n > LEAST_BUCKETS) levels.push(halved(levels[levels.length - 1], categories.length));
  return { low, categories, levels };
}

/** The finest level whose buckets are at least `width` ns long; null where all are shorter or longer is needed. */
export function levelFor(levels: Levels, width: number): Level | null {
  return levels.levels.find((level) => level.width >= width) ?? levels.levels[levels.levels.length - 1] ?? null;
}

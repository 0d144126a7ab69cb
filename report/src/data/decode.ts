/** The page's data block: base64 of a zlib stream of byte planes, turned into columns. */

/** All intervals of the page in the order of meta; times in ns from the start of each rank's window. */
export interface Columns {
  start: Float64Array;
  end: Float64Array;
  name: Int32Array;
  category: Uint8Array;
}

/** All points of all curves. */
export interface Points {
  at: Float64Array;
  value: Float64Array;
}

const TWO_32 = 2 ** 32;

/** The bytes of a base64 text. */
export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The bytes of a zlib stream; throws where the browser has no DecompressionStream. */
export async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads planes one after the other; throws RangeError where the bytes end too early. */
class Planes {
  #at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  count(): number {
    const here = this.take(4);
    return (here[0] | (here[1] << 8) | (here[2] << 16) | (here[3] << 24)) >>> 0;
  }

  take(n: number): Uint8Array {
    if (this.#at + n > this.bytes.length) throw new RangeError("the page's data is cut short");
    this.#at += n;
    return this.bytes.subarray(this.#at - n, this.#at);
  }

  /** Whole numbers of 4 bytes, or of 6 or 8 in two's complement; exact to 2^53. */
  whole(n: number, size: 4 | 6 | 8): Float64Array {
    const p = Array.from({ length: size }, () => this.take(n));
    const unused = 64 - 8 * size;
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const low = (p[0][i] | (p[1][i] << 8) | (p[2][i] << 16) | (p[3][i] << 24)) >>> 0;
      let high = 0;
      for (let k = 4; k < size; k++) high |= p[k][i] << (8 * k - 32);
      out[i] = (size === 4 ? 0 : (high << unused) >> unused) * TWO_32 + low;
    }
    return out;
  }
}

export interface Run {
  first: number;
  n: number;
}

/** Running sums within each run. */
function undelta(values: Float64Array, runs: Iterable<Run>): void {
  for (const run of runs) {
    for (let i = run.first + 1, end = run.first + run.n; i < end; i++) values[i] += values[i - 1];
  }
}

/** The columns that the inflated bytes hold; `tracks` and `curves` say where each row and curve lies. */
export function columnsOf(bytes: Uint8Array, tracks: Iterable<Run>, curves: Iterable<Run>): [Columns, Points] {
  const planes = new Planes(bytes);
  const rows = planes.count();
  const start = planes.whole(rows, 6);
  const end = planes.whole(rows, 6);
  const name = Int32Array.from(planes.whole(rows, 4)); // none: 2^32 - 1 becomes -1
  const category = planes.take(rows);
  undelta(start, tracks);
  for (let i = 0; i < rows; i++) end[i] += start[i];
  const points = planes.count();
  const at = planes.whole(points, 6);
  undelta(at, curves);
  return [{ start, end, name, category }, { at, value: planes.whole(points, 8) }];
}

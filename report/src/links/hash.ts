/** What the part of an address behind # asks of the timeline. */

export type Ask =
  | { kind: "see"; key: string; rank: string | null }
  | { kind: "time"; low: number; high: number; rank: string | null }
  | { kind: "name"; index: number; rank: string | null }
  | { kind: "part"; part: string; rank: string | null };

/** Splits "a=b&c=d"; null where it cannot be read. */
function pairs(text: string): Map<string, string> | null {
  const out = new Map<string, string>();
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    if (at < 1) return null;
    try {
      out.set(part.slice(0, at), decodeURIComponent(part.slice(at + 1)));
    } catch {
      return null;
    }
  }
  return out;
}

/** What `#...` asks for; null where it asks nothing of the timeline, as an anchor of the page does. */
export function parseHash(hash: string): Ask | null {
  const asked = pairs(hash.replace(/^#/, ""));
  if (!asked) return null;
  const rank = asked.get("rank") ?? null;
  const key = asked.get("see");
  if (key !== undefined) return { kind: "see", key, rank };
  const step = asked.get("step");
  if (step !== undefined) return { kind: "see", key: `step:${step}`, rank };
  const part = asked.get("part");
  if (part !== undefined) return { kind: "part", part, rank };
  const name = asked.get("name");
  if (name !== undefined && /^\d+$/.test(name)) return { kind: "name", index: Number(name), rank };
  const stretch = /^(-?\d+)-(-?\d+)$/.exec(asked.get("t") ?? "");
  if (!stretch || Number(stretch[1]) > Number(stretch[2])) return null;
  return { kind: "time", low: Number(stretch[1]), high: Number(stretch[2]), rank };
}

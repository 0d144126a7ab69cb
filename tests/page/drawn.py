"""Writes a page of drawn data, to look at the report's script without a trace: `python -m tests.page.drawn OUT.html`.

24 rows of one rank with 200,016 intervals, or `--ranks N` smaller ones; names that would do harm as markup.
"""

import argparse
import base64
import html
import json
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STATIC = Path(__file__).parents[2] / "profkit/render/html/static"
PARTS = (
    *("compute", "comm_exposed", "copy_exposed", "idle_data", "idle_sync", "idle_launch", "idle_host"),
    *("idle_dependency", "idle_unknown"),
)
CATEGORIES = (*PARTS, "comm_hidden", "copy_hidden", "host", "step", "module", "wait")
HOSTILE = (
    "</script><script>window.harm=1</script>",
    "<img src=x onerror=window.harm=1>",
    "javascript:window.harm=1",
    "gemm\u202egnp.evil\u202c \u2066mark",
    '"><svg onload=window.harm=1>',
)
KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "Memcpy HtoD (Pinned -> Device)",
    "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
    *(f"triton_poi_fused_add_mul_{i}" for i in range(200)),
)
NAMES = (
    *HOSTILE,
    *KERNELS,
    "aten::linear",
    "aten::mm",
    "ProfilerStep",
    "[1024, 4096]",
    "model.layers.3.mlp",
    "train.py:41",
)
INT = NDArray[np.int64]
ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def _planes(values: INT, n: int) -> bytes:
    """The lowest `n` bytes of each value, one plane after the other."""
    return np.ascontiguousarray(values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :n].T).tobytes()


def _intervals(rng: np.random.Generator, n: int, window: int, *, is_full: bool) -> tuple[INT, INT]:
    """Disjoint intervals, sorted; `is_full`: without gaps."""
    cuts = np.sort(rng.choice(window, 2 * n, replace=False)).astype(np.int64)
    if is_full:
        starts = np.concatenate(([0], np.sort(cuts[::2])[1:]))
        return starts, np.diff(np.concatenate((starts, [window])))
    return cuts[::2], cuts[1::2] - cuts[::2]


class Drawn:
    """The blocks of a page, filled rank by rank."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.columns: dict[str, list[INT]] = {
            "start": [],
            "length": [],
            "name": [],
            "category": [],
            "at": [],
            "value": [],
        }
        self.n = 0
        self.points = 0

    def track(self, named: tuple[str, str, str, str], cut: tuple[INT, INT], kinds: INT, names: INT) -> dict[str, Any]:
        """Adds a row, named by key, label, group and role; gives its entry in meta."""
        key, label, group, role = named
        start, length = cut
        self.columns["start"].append(np.diff(start, prepend=0))
        self.columns["length"].append(length)
        self.columns["name"].append(names)
        self.columns["category"].append(kinds)
        first, self.n = self.n, self.n + start.size
        return {
            "key": key,
            "label": label,
            "group": group,
            "role": role,
            "first": first,
            "n": int(start.size),
            "is_reduced": role == "budget",
        }

    def curve(self, key: str, label: str, window: int, n: int) -> dict[str, Any]:
        """Adds a curve of bytes."""
        at = np.sort(self.rng.integers(0, window, n))
        steps = np.where(np.arange(n) % 40 < 20, 1, -1) * self.rng.integers(1 << 20, 1 << 28, n)
        value = np.abs(np.cumsum(steps))
        self.columns["at"].append(np.diff(at, prepend=0))
        self.columns["value"].append(value)
        first, self.points = self.points, self.points + n
        return {"key": key, "label": label, "unit": "bytes", "first": first, "n": n}

    def rank(self, rank: int | None, n_all: int, window: int) -> dict[str, Any]:
        """One rank: steps, budget, host, streams, threads; 24 rows of `n_all` intervals."""
        rng, n_names = self.rng, len(NAMES)
        n_stream = n_all // 24
        steps = np.arange(10, dtype=np.int64) * (window // 10)
        step_cut = (steps, np.full(10, window // 10))
        tracks = [self.track(("steps", "steps", "", "steps"), step_cut, np.full(10, 12), np.full(10, n_names - 4))]
        cut = _intervals(rng, n_stream, window, is_full=True)
        parts = np.asarray(
            rng.choice(9, n_stream, p=[0.5, 0.1, 0.05, 0.1, 0.05, 0.1, 0.03, 0.03, 0.04]), dtype=np.int64
        )
        budget = (cut, parts)
        tracks.append(self.track(("budget", "budget", "", "budget"), cut, parts, np.full(n_stream, -1)))
        for key, label, group, role, kind in (
            ("host", "waits of the host", "", "host", 14),
            *((f"stream:0:{i}", f"stream {i}", "GPU 0", "stream", (0, 1, 2, 9)[i % 4]) for i in (7, 8, 9, 10, 11)),
            *((f"thread:0:{i}", f"main thread, depth {i}", "host: main thread", "thread", 11) for i in range(16)),
        ):
            n = n_all - self.n if key == "thread:0:15" and rank is None else n_stream
            cut = _intervals(rng, n, window, is_full=False)
            kinds = np.where(rng.random(n) < 0.9, kind, (kind + 1) % 9)
            tracks.append(self.track((key, label, group, role), cut, kinds, rng.integers(0, n_names - 6, n)))
        curves = [self.curve("allocated", "allocated", window, 5000), self.curve("reserved", "reserved", window, 200)]
        return {
            "label": "" if rank is None else f"rank {rank}",
            "rank": rank,
            "window_ns": [1000, 1000 + window],
            "shift_ns": 0 if rank is None else rank * 250_000,
            "names": list(NAMES),
            "tracks": tracks,
            "curves": curves,
            "proofs": self._proofs(budget, steps, window),
            "work": self._work(),
            "peak_flops": 989e12,
            "peak_bytes": 3.35e12,
        }

    def _proofs(self, budget: tuple[tuple[INT, INT], INT], steps: INT, window: int) -> dict[str, Any]:
        (start, length), parts = budget
        proofs: dict[str, Any] = {}
        for i, part in enumerate(PARTS):
            own = parts == i
            label = part.replace("_", " ")
            proofs[f"part:{part}"] = {
                "label": label,
                "tracks": ["budget"],
                "category": part,
                "spans": [],
                "n": int(own.sum()),
                "total_ns": int(length[own].sum()),
            }
        for i, at in enumerate(steps.tolist()):
            spans = [[at, window // 10]]
            entry = {"label": f"step {i}", "tracks": ["steps"], "category": "", "spans": spans, "n": 1}
            proofs[f"step:{i}"] = {**entry, "total_ns": window // 10}
        own = np.flatnonzero(parts == PARTS.index("idle_sync"))
        longest = own[np.argsort(-length[own])][:37]
        spans = np.stack((start[longest], length[longest]), 1).tolist()
        proofs["finding:sync.blocking"] = {
            "label": "the host waits for the device",
            "tracks": ["budget", "host"],
            "category": "",
            "spans": spans,
            "n": len(spans),
            "total_ns": int(length[longest].sum()),
        }
        return proofs

    def _work(self) -> dict[str, Any]:
        n = 2000
        last = len(NAMES)
        columns = [
            *("kind", "name", "op", "shape", "module", "line", "n", "total_ns", "self_ns", "max_ns", "flops"),
            "bytes",
        ]
        rows = []
        for i in range(n):
            total = int(self.rng.integers(10_000, 30_000_000))
            flops = None if i % 3 else total * 1e3 * float(self.rng.uniform(5, 700))
            moved = None if flops is None else flops / float(self.rng.uniform(1, 2000))
            kind = ("kernel", "operator", "copy", "comm")[0 if i % 4 < 2 else i % 4 - 1]
            numbers = [10 + i % 50, total, total // 2, total // 5, flops, moved]
            rows.append([kind, i % (last - 6), last - 6, last - 3, last - 2 if i % 2 else -1, last - 1, *numbers])
        return {"columns": columns, "rows": rows, "n_all": 3456}

    def blocks(self, ranks: list[dict[str, Any]]) -> tuple[str, str]:
        """The texts of `profkit-meta` and `profkit-data`."""
        whole = {key: np.concatenate(values) for key, values in self.columns.items()}
        data = [np.uint32(self.n).tobytes(), _planes(whole["start"], 6), _planes(whole["length"], 6)]
        data += [_planes(whole["name"], 4), _planes(whole["category"], 1)]
        data += [np.uint32(self.points).tobytes(), _planes(whole["at"], 6), _planes(whole["value"], 8)]
        labels = {name: name.replace("_", " ") for name in CATEGORIES}
        meta = {"version": 1, "categories": CATEGORIES, "labels": labels, "ranks": ranks}
        text = json.dumps(meta, ensure_ascii=False, separators=(",", ":")).translate(ESCAPES)
        return text, base64.b64encode(zlib.compress(b"".join(data), 6)).decode()


SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
style-src 'sha256-{style_sum}'; script-src 'sha256-{script_sum}'; base-uri 'none'; form-action 'none'">
<title>drawn</title><style>{style}</style></head><body>
<p id="theme"></p><h1>A drawn report</h1>
<p>The GPU waits for the host: <a class="see" href="#see=finding:sync.blocking">37 waits</a>,
<a class="see" href="#part=idle_data">waiting for data</a>, <a class="see" href="#see=step:3">step 3</a>,
<a class="see" href="#t=1000000-2000000">1 to 2 ms</a>, <a class="see" href="#name=5">a gemm</a>.</p>
<p><code id="next">profkit run -o out -- python train.py</code>
<button type="button" data-copy-from="#next">copy</button></p>
<div id="timeline"><p class="static">no script, no timeline</p></div>
<h2>Kernels</h2><div id="explorer"><p class="static">top 20</p></div><h2>Roofline</h2><div id="roofline"></div>
<h2>A table</h2><table class="sortable" data-search data-rows="5">
<thead><tr><th>name</th><th>time</th></tr></thead><tbody>{rows}</tbody></table>
<script type="application/json" id="profkit-meta">{meta}</script>
<script type="text/plain" id="profkit-data">{data}</script>
<script>{script}</script></body></html>
"""
PLAIN = """
:root { color-scheme: light dark; } body { font: 15px system-ui; margin: 1rem; background: #fff; color: #14181d; }
@media (prefers-color-scheme: dark) { :root:not([data-theme="light"]) body { background: #111418; color: #e6e6e6; } }
:root[data-theme="dark"] { color-scheme: dark; } :root[data-theme="light"] { color-scheme: light; }
:root[data-theme="dark"] body { background: #111418; color: #e6e6e6; }
"""


def page(n: int, n_ranks: int, window: int = 2_000_000_000) -> str:
    """The page, with the policy under which reports run."""
    drawn = Drawn(7)
    ranks = [drawn.rank(None, n, window)] if n_ranks == 1 else [drawn.rank(i, n, window) for i in range(n_ranks)]
    meta, data = drawn.blocks(ranks)
    script = (STATIC / "page.js").read_text()
    style = PLAIN + (STATIC / "page.css").read_text()
    sums = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    rows = "".join(
        f"<tr><td>{html.escape(NAMES[i])}</td><td data-v='{i * 7 % 11}'>{i * 7 % 11} ms</td></tr>" for i in range(20)
    )
    blocks = {"style": style, "script": script, "style_sum": sums[0], "script_sum": sums[1]}
    return SHELL.format(meta=meta, data=data, rows=rows, **blocks)


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--intervals", type=int, default=200_016)
    args = parser.parse_args()
    args.out.write_text(page(args.intervals, args.ranks), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Each optional extra of pyproject.toml in an environment of its own, and what it is for."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.release.environments import ROOT, Environment
from tests.release.smoke import RANKS, TRACE, expected

HEAVY: Final = frozenset({"capture", "hta", "ncu"})
"""Left out of a sample: torch, HTA with a notebook server, NVIDIA's reader take minutes to fetch and unpack."""
_TRAIN: Final = """
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
"""
_CLUSTER: Final = """
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""
_ROWS: Final = """
import sys
import pyarrow.csv
import pyarrow.parquet

print(pyarrow.parquet.read_table(sys.argv[1]).num_rows, pyarrow.csv.read_csv(sys.argv[2]).num_rows)
"""
_REP: Final = ROOT.parent / "shared" / "data" / "ncu" / "mojo_small.ncu-rep"


def parquet(env: Environment, folder: Path) -> Iterator[str]:
    """A table as parquet has the rows of the same table as CSV."""
    for suffix in ("parquet", "csv"):
        done = env.profkit("export", TRACE, "--table", "budget", "-o", folder / f"budget.{suffix}")
        if done.returncode:
            yield f"profkit export -o x.{suffix}: {done.stderr}"
            return
    done = env.run(env.python, "-c", _ROWS, folder / "budget.parquet", folder / "budget.csv")
    counts = done.stdout.split()
    if len(counts) != 2 or counts[0] != counts[1] or counts[0] == "0":
        yield f"rows of the table as parquet and as CSV: {done.stdout}{done.stderr}"


def mcp(env: Environment, folder: Path) -> Iterator[str]:
    """A client that starts the server is told its tools."""
    ask = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "release", "version": "0"}}
    asked = [
        ask | {"params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ask | {"id": 1, "method": "tools/list"},
    ]
    line = [env.folder / "bin" / "profkit", "mcp", "--root", folder]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        server.stdin.write("".join(json.dumps(one) + "\n" for one in asked))
        server.stdin.flush()
        said = [server.stdout.readline() for _ in range(2)]
        server.stdin.close()
    if server.returncode or '"triage"' not in said[1]:
        yield f"profkit mcp: exit code {server.returncode}: {said}"


def remote(env: Environment, folder: Path) -> Iterator[str]:
    """A trace at a URL gives the verdict of the file."""
    done = env.profkit("triage", f"file://{TRACE}", "-f", "json")
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    if said.get("verdict", {}).get("headline") != _verdict(folder)["headline"]:
        yield f"profkit triage file://...: exit code {done.returncode}: {done.stderr}"


def cluster(env: Environment, folder: Path) -> Iterator[str]:
    """Ranks that a cluster's worker reads give the checkout's report."""
    script = folder / "cluster.py"
    script.write_text(_CLUSTER, encoding="utf-8")
    with subprocess.Popen(
        [env.python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as run:
        address = run.stdout.readline().strip()
        words = ("triage", RANKS, "-f", "json", "--no-cache")
        done = env.profkit(*words, "--dask", address)
        run.communicate("\n")
    if done.returncode or done.stdout != expected(folder, *words):
        yield f"profkit triage --dask {address}: exit code {done.returncode}: {done.stderr}"


def capture(env: Environment, folder: Path) -> Iterator[str]:
    """A script is recorded, and the recording judged."""
    (folder / "train.py").write_text(_TRAIN, encoding="utf-8")
    done = env.profkit("capture", "-o", "run", "--", "python", "train.py", cwd=folder)
    judged = env.profkit("triage", "run", "-f", "json", "--no-cache", cwd=folder)
    if done.returncode or judged.returncode:
        yield f"profkit capture: exit code {done.returncode}: {done.stderr}{judged.stderr}"
    elif not json.loads(judged.stdout)["ranks"][0]["n_events"]:
        yield "the recording is empty"
    if env.profkit("doctor").returncode:
        yield "profkit doctor finds that something is missing"


def hta(env: Environment, folder: Path) -> Iterator[str]:
    """What profkit is measured beside can be imported; no command of profkit needs it."""
    done = env.run(env.python, "-c", "import psutil; from hta.trace_analysis import TraceAnalysis")
    if done.returncode:
        yield f"import hta: {done.stderr}"


def ncu(env: Environment, folder: Path) -> Iterator[str]:
    """A report of Nsight Compute is read; without one here, what is no report is refused by NVIDIA's reader."""
    if _REP.exists():
        done = env.profkit("kernels", _REP, "-f", "json")
        if done.returncode or not json.loads(done.stdout)["kernels"]:
            yield f"profkit kernels: exit code {done.returncode}: {done.stderr}"
        return
    (folder / "empty.ncu-rep").write_bytes(b"NVR\0")
    done = env.profkit("kernels", folder / "empty.ncu-rep")
    if done.returncode != 3 or "profkit[ncu]" in done.stderr:
        yield f"profkit kernels: exit code {done.returncode}: {done.stderr}"


TRIALS: Final[dict[str, Callable[[Environment, Path], Iterator[str]]]] = {
    "capture": capture,
    "cluster": cluster,
    "hta": hta,
    "mcp": mcp,
    "ncu": ncu,
    "parquet": parquet,
    "remote": remote,
}
"""What is tried of an extra."""


def _verdict(folder: Path) -> dict[str, str]:
    return json.loads(expected(folder, "triage", TRACE, "-f", "json"))["verdict"]

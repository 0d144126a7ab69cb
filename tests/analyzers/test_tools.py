"""The next commands run as printed, on NVIDIA's tools and on AMD's."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
from msgspec.structs import replace

from profkit.analyzers.base import Scope, Vendor, scope_of
from profkit.analyzers.patterns import clocks
from profkit.analyzers.patterns import judged as patterns
from profkit.analyzers.precision import kernels as precision
from profkit.analyzers.steps import not_the_job
from profkit.analyzers.tools import (
    equal_batches,
    graph_timeline,
    kernel_profile,
    late_steps,
    metal_timeline,
    operators,
    py_spy_loader,
    py_spy_main,
    py_spy_operators,
    recapture,
    steps_alone,
    system_timeline,
)
from profkit.capture.tools.ncu import target_of
from profkit.cli import group, trial
from profkit.crosscheck import compared_timelines, kernel_evidence
from profkit.findings import KINDS
from profkit.findings.host import STALL
from profkit.findings.kernels import FALLBACK
from profkit.findings.patterns import CONVERSIONS, GRAPH_BREAKS, RECOMPILE
from profkit.ingest.kineto.source import traits
from profkit.ingest.nsys.source import traits as nsys_traits
from profkit.model.documents.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.ranks.findings import lateness, links, overall
from profkit.ranks.measure.longer_compute import Longer
from profkit.render.words import explain
from profkit.shell import CommandLine, line_of, stand_in
from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.launch_order import shortened
from profkit.verdict.decide import _measured_by
from tests import test_other_loop
from tests.capture.running import ENVIRONMENT, ROOT

SCOPE = Scope(
    window_ns=1, n_steps=1, has_steps=True, is_cpu=False, command=line_of("python train.py --lr 1"), traits=traits()
)
KERNELS = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)",
    "void at::native::(anonymous namespace)::layer_norm_kernel<float>(int)",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "triton_poi_fused_add_0",
    "Cijk_Alik_Bljk_SB_MT64x16x32",
]


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_is_named_as_ncu_knows_it_and_survives_the_shell(name: str) -> None:
    words = shlex.split(kernel_profile(SCOPE, name, "p", "l", launch=7).command)
    function = re.split(r"[<(]", name.replace("(anonymous namespace)::", "").removeprefix("void "))[0].split("::")[-1]
    assert words == [
        *("profkit", "ncu", "--kernel", function, "--skip", "7", "--"),
        *("python", "train.py", "--lr", "1"),
    ]
    assert "--skip" not in kernel_profile(SCOPE, name, "p", "l").command


MANGLED = f"_ZN7cutlass6KernelIN4cute5tupleIJ{'NS1_1CILi128EEE' * 120}EEEEEvNT_6ParamsE"
"""As Kineto leaves names of more than 1024 characters."""
FUSED = [f"triton_red_fused_{'_add_mul' * 40}{end}" for end in ("_3", "_13", "_native_layer_norm_3")]


def test_a_long_name_is_found_by_a_short_part_that_no_other_kernel_has() -> None:
    rows = [
        kernel(name, at, at + 1, correlation=at) for at, name in enumerate([MANGLED, *FUSED, "triton_poi_fused_add_3"])
    ]
    scope = scope_of(Facts.of(trace_of(rows)))
    patterns = []
    for name in FUSED:
        words = shlex.split(kernel_profile(scope, name, "p", "l").command)
        pattern = target_of(words[words.index("--kernel") + 1], skip=None, count=None).pattern
        assert len(pattern) <= 90
        assert [one for one in FUSED if re.search(pattern, one)] == [name]
        patterns.append(pattern)
    early = f"void gemm_{'long_' * 20}(int)"
    assert shortened({early, *FUSED}) == {f"gemm_{'long_' * 20}": "^gemm_long_long_long_long"} | dict(
        zip(FUSED, patterns, strict=True)
    )
    assert shortened({"k" * 70, "k" * 71})["k" * 70] == f"^{'k' * 70}$"
    assert " --kernel Kernel -- " in kernel_profile(scope, MANGLED, "p", "l").command
    amd = kernel_profile(replace(scope, vendor=Vendor.AMD), FUSED[0], "p", "l")
    assert shlex.split(amd.command)[5] == FUSED[0][:60]


def test_without_steps_the_launch_is_counted_from_the_start_of_the_run_and_its_length_is_told() -> None:
    tool = kernel_profile(replace(SCOPE, has_steps=False), "triton_", "p", "l", launch=41, lasts_ns=1_187_000)
    assert "--kernel triton_ --skip 41 --whole -- " in tool.command
    assert "a launch of 1.19 ms" in tool.look_for
    assert "--whole" not in kernel_profile(replace(SCOPE, has_steps=False), "triton_", "p", "l").command
    assert kernel_profile(SCOPE, "triton_", "p", "l", launch=41, lasts_ns=1_187_000).look_for == "l"


def test_a_cpu_trace_has_no_capture_range_to_wait_for() -> None:
    assert system_timeline(SCOPE, "p", "l").command == "profkit nsys --also waits -- python train.py --lr 1"
    assert " --whole " in system_timeline(replace(SCOPE, is_cpu=True), "p", "l").command


@pytest.mark.parametrize(
    ("command", "is_whole"),
    [
        ("python train.py", False),
        ("/opt/conda/bin/python3.11 -m train", False),
        ("torchrun --nproc-per-node 2 train.py", False),
        ("numactl -N 0 ./a.out", False),
        ("./run.sh", False),
        ("./build/train --steps 3", True),
        ("./trtexec --onnx=model.onnx", True),
    ],
)
def test_of_an_export_commands_for_programs_without_python_record_all_of_the_run(command: str, is_whole: bool) -> None:
    exported = replace(SCOPE, traits=nsys_traits(), command=line_of(command))
    for tool in (
        system_timeline(exported, "p", "l"),
        recapture(exported, "p", "l"),
        kernel_profile(exported, "k", "p", "l"),
    ):
        assert (" --whole " in tool.command) is is_whole
        assert tool.command.endswith(f"-- {command}")
    torchs = replace(SCOPE, command=line_of(command))  # torch.profiler ran in Python
    assert "--whole" not in system_timeline(torchs, "p", "l").command


def test_amd_devices_get_amds_tools() -> None:
    amd = replace(SCOPE, vendor=Vendor.AMD)
    assert system_timeline(amd, "p", "l").command.startswith("rocprofv3 ")
    assert kernel_profile(amd, KERNELS[0], "p", "l").name == "rocprof-compute"
    assert "--kernel vectorized_elementwise_kernel --" in kernel_profile(amd, KERNELS[0], "p", "l").command
    assert system_timeline(SCOPE, "p", "l").name == "nsys"


@pytest.mark.parametrize("vendor", [Vendor.AMD, Vendor.INTEL])
def test_what_to_look_for_is_in_the_tool_of_the_vendor(vendor: Vendor) -> None:
    other, said = replace(SCOPE, vendor=vendor), "futex waits in the CUDA API row"
    assert "futex" not in system_timeline(other, "p", said).look_for
    assert "CUDA" not in system_timeline(other, "p", said).look_for
    assert system_timeline(other, "p", said, is_for_any=True).look_for == said
    assert system_timeline(SCOPE, "p", said).look_for == said


def test_of_a_late_rank_and_a_peer_alone_python_is_sampled() -> None:
    ranked = replace(SCOPE, command=line_of("torchrun --nproc-per-node 4 train.py"))
    line = system_timeline(ranked, "p", "l", ranks=(2, 1)).command
    assert line == "profkit nsys --ranks 2,1 --also waits,python -- torchrun --nproc-per-node 4 train.py"
    assert " --also waits,samples " in system_timeline(replace(ranked, is_cpu=True), "p", "l", ranks=(2, 1)).command
    assert "--subprocesses" in py_spy_main(ranked.command).command


def test_a_job_of_ranks_whose_command_is_unknown_is_started_as_one() -> None:
    rows = [kernel("k", 10**9, 10**9 + 1000, correlation=1), launch(10**9 - 5, 10**9 - 4, correlation=1)]
    facts = Facts.of(trace_of(rows, distributedInfo={"backend": "nccl", "rank": 1, "world_size": 4}))
    assert scope_of(facts).command.text == "torchrun --nproc-per-node 4 train.py"


def test_intels_devices_get_vtune() -> None:
    intel = replace(SCOPE, vendor=Vendor.INTEL)
    assert system_timeline(intel, "p", "l").command.startswith("vtune -collect gpu-offload ")
    assert kernel_profile(intel, KERNELS[0], "p", "l").command.startswith("vtune -collect gpu-hotspots ")


def test_the_vendor_is_read_from_the_trace() -> None:
    start = 10**9
    rows = [span("ProfilerStep#0", start, start + 10**6)]
    for n in range(30):
        at = start + 30_000 * n
        rows += [kernel("k", at + 6000, at + 26_000, correlation=n + 1), launch(at, at + 2000, correlation=n + 1)]
    _, plain = triage_trace(trace_of(rows))
    _, rocm = triage_trace(trace_of(rows, hip_runtime_version=60200))
    xpu = [replace(row, name="urEnqueueKernelLaunch") if row.name == "cudaLaunchKernel" else row for row in rows]
    assert triage_trace(trace_of(xpu))[1].next_tool.command.startswith("vtune -collect gpu-")
    assert plain.next_tool.name in {"ncu", "nsys"}
    assert rocm.next_tool.name.startswith("rocprof")


SAMPLE = str(ROOT / "traces" / "data_cpu.pt.trace.json.gz")
SITES = {
    "analyzers.patterns.clocks": ("_next",),
    "analyzers.patterns.judged": ("_next",),
    "analyzers.precision.kernels": ("_tried",),
    "analyzers.steps": ("not_the_job",),
    "analyzers.tools": (
        *("recapture", "late_steps", "steps_alone", "operators", "metal_timeline", "py_spy_loader", "py_spy_main"),
        *("system_timeline", "graph_timeline", "kernel_profile", "equal_batches"),
    ),
    "crosscheck.compared_timelines": ("_same_job",),
    "crosscheck.kernel_evidence": ("_next",),
    "probe.against_trace": ("_overturned",),
    "ranks.findings.lateness": ("_next_tool",),
    "ranks.findings.links": ("link_test", "network_test", "_sender_test", "_twin_test"),
    "ranks.findings.overall": ("_bring",),
}
"""The functions that make next commands: a new one belongs into `_tools` or `_tools_of_ranks`."""


def test_each_function_that_makes_a_next_command_is_tried_here() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "profkit").rglob("*.py")):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "NextTool"
                for call in ast.walk(one)
            ):
                module = ".".join(path.relative_to(ROOT / "profkit").with_suffix("").parts)
                found.setdefault(module, []).append(one.name)
    assert {module: tuple(sorted(names)) for module, names in found.items()} == {
        module: tuple(sorted(names)) for module, names in SITES.items()
    }


def _tools(scope: Scope) -> list[CommandLine]:
    """One of each next command that an analysis of one trace can print, and of two tools together."""
    kinds = (RECOMPILE, GRAPH_BREAKS, CONVERSIONS)
    taken: list[Any] = [SimpleNamespace(pattern=SimpleNamespace(kind=kind, what=("a", "some"))) for kind in kinds]
    portrait: Any = SimpleNamespace(scope=scope, verdict=SimpleNamespace(bottleneck=Bottleneck.KERNEL))
    tools = [
        recapture(scope, "why", "what"),
        late_steps(scope, 80),
        operators(scope, "why", "what", flags="--shapes"),
        py_spy_loader(scope.command),
        py_spy_main(scope.command),
        py_spy_main(replace(scope.command, words=("torchrun", *scope.command.words[1:]))),
        py_spy_operators(scope.command),
        system_timeline(scope, "why", "what"),
        graph_timeline(scope),
        metal_timeline(scope.command),
        kernel_profile(scope, "ampere_sgemm_128x64_tn", "why", "what", launch=3, lasts_ns=5_000),
        kernel_profile(replace(scope, long_kernels={"k" * 70: "^k.*k$"}), "k" * 70, "why", "what"),
        steps_alone(SAMPLE, 4),
        equal_batches(scope),
        *(patterns._next(scope, one, is_over=over) for one in taken for over in (False, True)),
        clocks._next(),
        *(
            precision._tried(SimpleNamespace(scope=scope, rates=None, launches={}), name, change)  # type: ignore[arg-type]
            for name in (*KERNELS, "ampere_sgemm_128x64_tn")
            for change in ("bf16", "tf32")
        ),
        system_timeline(scope, "why", "what", ranks=(2, 1)),
        compared_timelines._same_job(portrait),
        kernel_evidence._next(portrait, (), (), ("-x.ncu-rep",)),
        not_the_job(Facts.of(trace_of(test_other_loop.steps(), profkit_other_loop=test_other_loop.OTHER)))[1],
    ]
    measured = [_measured_by(portrait, SimpleNamespace(id=id_)) for id_ in (FALLBACK.id, STALL.id)]
    return [*(tool.line for tool in tools), *measured, stand_in("torchrun a.py", 2).under("profkit run")]


def _tools_of_ranks(scope: Scope) -> list[CommandLine]:
    """One of each next command that an analysis of many ranks can print."""
    waits: Any = SimpleNamespace(ranks=(0, 1, 2), wait_ns=np.zeros((1, 3), np.int64))
    outcome = SimpleNamespace(report=SimpleNamespace(source=SAMPLE), summary=SimpleNamespace(host="a"))
    joint: Any = SimpleNamespace(outcome_of=lambda _: outcome, outcomes=(outcome,))
    link: Any = SimpleNamespace(ranks=(0, 1), n_bytes=2**30, sender_host="a", receiver_host="b", bytes_per_s=1e9)
    late: list[Any] = [
        SimpleNamespace(
            rank=1, phase=phase, waits=waits, joint=joint, straggler=SimpleNamespace(longer=longer), models_apart=None
        )
        for phase, longer in (("data", None), ("device", None), ("compute", Longer.DEVICE), ("copy", None))
    ]
    tools = [
        *(lateness._next_tool(one, scope) for one in late),
        *(links.link_test(waits, hosts, scope, is_small=small) for hosts in ({}, {"a": 1, "b": 2}) for small in (0, 1)),
        links.network_test(("a", "b", "c")),
        *(links._twin_test(link, scope, hosts) for hosts in ((), ("a", "b"), ("-a", "b"))),
        links._sender_test(link),
        overall._bring(joint, "rank 3"),
    ]
    return [tool.line for tool in tools]


DOCUMENTED = {
    "iperf3": "--bidir -c -s",  # iperf3(1)
    "mpirun": "-np --host -b -e -f -g",  # mpirun(1) of Open MPI: host:slots; then as all_reduce_perf
    "all_reduce_perf": "-b -e -f -g",  # README.md of github.com/NVIDIA/nccl-tests, "Arguments"
    "nvidia-smi": "-q -d -c",  # nvidia-smi(1): -q, -d with the words below; pmon -c
    "py-spy": "--subprocesses --native --rate --duration --output",  # py-spy record --help of 0.4.3
    "rocprof-compute": "--name --kernel",  # rocm.docs.amd.com/projects/rocprofiler-compute, "Profile mode"
    "rocprofv3": "--sys-trace --output-format -d",  # rocm.docs.amd.com/projects/rocprofiler-sdk, "Using rocprofv3"
    "vtune": "-collect -result-dir",  # "vtune Command Options" of Intel's user guide
    "xcrun": "--output --template --launch",  # xctrace(1)
}
"""Options of other people's tools that are printed, by what their manuals say of them."""
VALUES = {
    "nvidia-smi": {"pmon", "10", "PERFORMANCE,CLOCK,POWER,TEMPERATURE"},
    "rocprofv3": {"pftrace", "profkit_rocprof"},
    "vtune": {"gpu-offload", "gpu-hotspots", "profkit_vtune"},
    "xcrun": {"xctrace", "record", "profkit.trace", "Metal System Trace"},
}
RUN = {"capture", "bench", "nsys", "triage"}
"""What is run here of profkit's own; `try`, `probe` and `run` take longer and have tests, `ncu` needs a GPU."""


def _try(line: CommandLine, told: Path, *, runs: bool) -> None:
    """A line runs the stand-in where its program is here; profkit's are parsed, others are as their manuals say."""
    program, *rest = shlex.split(line.text)
    place = rest.index("--") if "--" in rest else len(rest)
    if program == "env":
        assert subprocess.run(shlex.split(line.text), check=False, cwd=told.parent, env=ENVIRONMENT).returncode == 0
        assert told.read_text() == rest[0].partition("=")[2]
    elif program == "profkit":
        sub = group.get_command(click.Context(group), rest[0])
        sub.parse_args(click.Context(sub, info_name=rest[0]), rest[1:])
        # nsys 2022.4 hangs now and then at the end of short programs that it samples, without profkit as well
        is_here = rest[0] != "nsys" or (shutil.which("nsys") and "--whole" in rest and "waits,samples" not in rest)
        if runs and is_here and rest[0] in RUN:
            words = [sys.executable, "-m", "profkit", *rest]
            done = subprocess.run(words, check=False, cwd=told.parent, env=ENVIRONMENT, capture_output=True, text=True)
            assert done.returncode in ({0, 4} if rest[0] == "capture" else {0}), (line.text, done.stderr)  # no steps
            assert told.exists() or "--" not in rest, (line.text, done.stderr)
    elif program == "py-spy" and shutil.which("py-spy") and runs and "torchrun" not in rest:
        assert subprocess.run(shlex.split(line.text), check=False, cwd=told.parent, env=ENVIRONMENT).returncode == 0
        assert told.exists()
    else:
        options = set(DOCUMENTED[program].split())
        assert {word for word in rest[:place] if word.startswith("-")} <= options, line.text
        values = {word for word in rest[:place] if not word.startswith("-")}
        assert values <= VALUES.get(program, values), line.text
        assert not values & {"HOST", "COMMAND"}, line.text
        assert "--launch" not in rest or rest[place - 1] == "--launch", "it takes the program that follows"
    told.unlink(missing_ok=True)


STAND_IN = """
import os, pathlib, sys, time
told = pathlib.Path(sys.argv[1])
lasts_s = {} * (not told.exists())
told.write_text(os.environ.get("TORCH_LOGS", ""))
time.sleep(lasts_s)
"""


@pytest.mark.parametrize("vendor", Vendor)
@pytest.mark.parametrize("is_cpu", [False, True], ids=["a device", "a CPU"])
def test_every_printed_line_starts_a_program_that_takes_it(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cpu: bool
) -> None:
    script = tmp_path / "stand in.py"
    script.write_text(STAND_IN.format(1 if shutil.which("py-spy") else 0))  # it reads nothing of shorter programs
    told = tmp_path / "told.txt"
    command = CommandLine((sys.executable, str(script), str(told)))
    scope = replace(SCOPE, command=command, vendor=vendor, is_cpu=is_cpu)
    seen = set()
    for line in (*_tools(scope), *_tools_of_ranks(scope)):
        _try(line, told, runs=vendor is Vendor.NVIDIA and is_cpu and line.text not in seen)
        seen.add(line.text)


def test_the_experiments_of_the_findings_are_lines_that_profkit_takes(tmp_path: Path) -> None:
    """`profkit explain` prints one for each finding."""
    lines = {line_of(said) for kind in KINDS.values() if (said := explain._tried(kind))}
    lines |= {line_of("torchrun --nproc-per-node 2 train.py").under("profkit capture --memory -o", "base2/")}
    for line in lines:
        _try(line, tmp_path / "told.txt", runs=False)
        only = line.words[line.words.index("--only") + 1] if "--only" in line.words else ""
        trial._known([name for name in only.split(",") if name])

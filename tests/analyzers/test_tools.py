"""The next commands run as printed, on NVIDIA's tools and on AMD's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from profkit.analyzers.base import Scope, Vendor, scope_of
from profkit.analyzers.tools import (
    kernel_profile,
    operators,
    py_spy_loader,
    py_spy_main,
    py_spy_operators,
    recapture,
    steps_alone,
    system_timeline,
)
from profkit.capture.tools.ncu import target_of
from profkit.cli import group
from profkit.ingest.kineto.traits import traits
from profkit.ingest.nsys.traits import traits as nsys_traits
from profkit.model.finding import NextTool
from profkit.model.names import function_name
from profkit.pipeline import triage_trace
from profkit.shell import CommandLine, line_of
from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.launch_order import shortened

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


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("_Z9my_kernelPfi", "my_kernel"),
        ("_ZN2at6native13reduce_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_T1_", "reduce_kernel"),
        ("_ZN2at6native12_GLOBAL__N_117layer_norm_kernelIfEEvi", "layer_norm_kernel"),
        ("_Z", ""),
    ],
)
def test_a_mangled_name_has_the_function_that_its_plain_form_has(name: str, function: str) -> None:
    assert function_name(name) == function


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


def _tools(scope: Scope) -> list[NextTool]:
    """One of each next tool that an analysis of one trace can print."""
    named = ("recompiles", "graph_breaks")
    return [
        recapture(scope, "why", "what"),
        operators(scope, "why", "what", flags="--shapes"),
        py_spy_loader(scope.command),
        py_spy_main(scope.command),
        py_spy_operators(scope.command),
        system_timeline(scope, "why", "what"),
        kernel_profile(scope, "ampere_sgemm_128x64_tn", "why", "what", launch=3, lasts_ns=5_000),
        steps_alone("trace.json", 4),
        *(NextTool(name=one, line=scope.command.given(f"TORCH_LOGS={one}"), purpose="", look_for="") for one in named),
    ]


@pytest.mark.parametrize("vendor", Vendor)
@pytest.mark.parametrize("is_cpu", [False, True], ids=["a device", "a CPU"])
def test_every_printed_line_starts_a_program_that_takes_it(vendor: Vendor, tmp_path: Path, *, is_cpu: bool) -> None:
    """`env` runs the script here, profkit's own lines are parsed by its commands; of other tools, by their manuals."""
    script = tmp_path / "stand in.py"
    script.write_text("import os, pathlib, sys\npathlib.Path(sys.argv[1]).write_text(os.environ['TORCH_LOGS'])\n")
    told = tmp_path / "told.txt"
    command = CommandLine((sys.executable, str(script), str(told)))
    scope = replace(SCOPE, command=command, vendor=vendor, is_cpu=is_cpu)
    for tool in _tools(scope):
        program, *rest = shlex.split(tool.command)
        if program == "env":
            told.unlink(missing_ok=True)
            assert subprocess.run(shlex.split(tool.command), check=False).returncode == 0
            assert told.read_text() == rest[0].partition("=")[2]
        elif program == "profkit":
            sub = group.get_command(click.Context(group), rest[0])
            assert sub is not None
            sub.parse_args(click.Context(sub, info_name=rest[0]), rest[1:])
        else:
            assert program in {"py-spy", "vtune", "rocprofv3", "rocprof-compute"}, "its manual says: options -- program"
            assert rest[rest.index("--") + 1 :] == list(command.words)

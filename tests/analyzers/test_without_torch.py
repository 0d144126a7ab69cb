"""Programs without PyTorch, as nsys records them: nothing that is said speaks of what only PyTorch has."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.ingest.nsys.source import traits
from profkit.model.finding import Finding
from profkit.model.trace import Trace
from profkit.render.words.triage import recorded_sentence
from profkit.testing import draw
from tests.drawing import finding_in, triaged


def repeated(**cells: str) -> str:
    """Sixteen steps of the same cells; lanes with _ for the space of their names."""
    steps = ("1" + "." * (len(next(iter(cells.values()))) - 1)) * 16
    lanes = {"steps": steps, **{lane.replace("_", " "): cell * 16 for lane, cell in cells.items()}}
    return "\n".join(f"{lane} | {row}" for lane, row in lanes.items())


LAUNCHES = repeated(gpu_s7=".K....K....K...", main="L....L....L....")
WAITS = repeated(gpu_s7="...KKKkkkKKK......", main="LlL.SSSSSSSS......")
COPIES = repeated(gpu_s7="KKKCCCKKKDDK")
ALLOCATIONS = repeated(gpu_s7="KKK......KKK.", main="L.AAAAAAL....")
OF_TORCH = re.compile(
    r"torch|python|micro-batch|\.item|\.to\(|non_blocking|pin_memory|profkit (?:try|probe|capture)|operators|tensor"
    r"|--steps",
    re.IGNORECASE,
)


def recorded_by_nsys(picture: str, kernel: str, **metadata: Any) -> Trace:
    """The picture as an export of nsys, its kernels with that name."""
    trace = draw(picture, unit_ns=10_000, **metadata)
    strings = tuple(kernel if name == "compute_kernel" else name for name in trace.strings)
    return replace(trace, strings=strings, meta=replace(trace.meta, traits=traits()))


def said(finding: Finding) -> str:
    """What it says is to be done, with its proof and its next commands."""
    tools = (text for tool in finding.next_tools for text in (tool.purpose, tool.command, tool.look_for))
    return " | ".join((finding.title, finding.fix, finding.proof, *tools))


@pytest.mark.parametrize("kernel", ["main_55_gpu", "void genericReformat::copyPackedKernel<float>"])
@pytest.mark.parametrize(
    ("picture", "finding_id"),
    [
        (LAUNCHES, "host.launch_bound"),
        (WAITS, "host.sync"),
        (COPIES, "h2d.exposed"),
        (COPIES, "d2h.exposed"),
        (ALLOCATIONS, "memory.pressure"),
    ],
)
def test_nothing_speaks_of_pytorch_to_a_program_without_it(picture: str, finding_id: str, kernel: str) -> None:
    verdict, found, rank = triaged(recorded_by_nsys(picture, kernel))
    one = found[finding_id]
    assert not OF_TORCH.search(said(one))
    assert one.proof or finding_id == "d2h.exposed"  # whose kind speaks of copies alone
    assert verdict.measure is None
    assert "torch" not in rank.roof
    assert "torch" not in " ".join(one.how_to_get for one in rank.skipped if one.analyzer == "roof")
    assert " --whole " in verdict.next_tool.command
    assert verdict.next_tool.command.endswith(" -- ./program")
    of = triaged(recorded_by_nsys(picture, "void at::native::mul"))
    assert OF_TORCH.search(said(of.found[finding_id]))
    assert of.verdict.measure is not None


@pytest.mark.parametrize(
    ("told", "program"), [("./build/proof_test 5", "./program"), ("python solve.py", "train.py")], ids=["own", "Python"]
)
def test_a_strangers_program_is_shown_and_stands_in_no_command(told: str, program: str) -> None:
    verdict, _, rank = triaged(recorded_by_nsys(LAUNCHES, "main_55_gpu", profkit_command=told))
    assert recorded_sentence(rank) == f"with {told} (says the file); --command puts yours in place of {program}"
    assert verdict.next_tool.command.endswith(program)
    assert " --whole " in verdict.next_tool.command


def test_a_short_recording_is_made_longer_without_steps() -> None:
    verdict = triaged(recorded_by_nsys("gpu s7 | KK", "main_55_gpu")).verdict
    assert verdict.next_tool.command == "profkit nsys --also waits --whole -- ./program"


def test_conversions_of_layouts_are_told_in_no_words_of_pytorch() -> None:
    trace = recorded_by_nsys(repeated(gpu_s7="KKKKKkkkkk"), "void cudnn::ops::nchwToNhwcKernel<float>")
    one = finding_in(trace, "kernel.layout")
    assert "NHWC" in one.fix
    assert not OF_TORCH.search(one.fix + one.proof)
    assert not one.next_tools


HELD = repeated(gpu_s7="..KKKKKKKKKKKKKKKKKKKKK.KK.KK.KK", main="L.SSSSSSSSSSSSSSSSSSSSSL..L..L..")
"""The host reads a result while the device works; launches after that are late, since it had no lead."""


@pytest.mark.parametrize(("kernel", "leads"), [("main_55_gpu", False), ("void at::native::mul", True)])
def test_a_program_whose_device_works_is_not_told_to_wait_less_for_idle_time_that_comes_later(
    kernel: str, leads: bool
) -> None:
    """Nobody knows that such a program could go on without the result; PyTorch's `.item()` can be put off."""
    verdict, found, _ = triaged(recorded_by_nsys(HELD, kernel))
    assert verdict.bottleneck.value == "kernel-bound"
    assert not verdict.is_healthy
    assert found["host.sync"].fraction > 0.05
    assert ("host.sync" in [one.id for one in verdict.findings]) is leads
    assert leads or "profkit ncu" in verdict.next_tool.command


def test_idle_time_right_after_the_waits_leads_in_any_program() -> None:
    at_once = repeated(gpu_s7="..KKKKKKKKKKKKKKkkkkkkkkkkkkkk..", main="LlSSSSSSSSSSSSSSSSSSSSSSSSSSSS..")
    assert triaged(recorded_by_nsys(at_once, "main_55_gpu")).verdict.findings[0].id == "host.sync"


@pytest.mark.parametrize(
    ("kernel", "is_healthy"), [("nvkernel_matmult_mkn_offload", False), ("ampere_h16816gemm_128x128_tn", True)]
)
def test_work_in_products_of_matrices_is_healthy_where_a_library_wrote_them(kernel: str, is_healthy: bool) -> None:
    verdict = triaged(recorded_by_nsys(repeated(gpu_s7="KKKKKKKKKKKKKKKkkkkkkkkkkkkkkkk."), kernel)).verdict
    assert verdict.bottleneck.value == "kernel-bound"
    assert verdict.is_healthy is is_healthy

"""Devices of which a recording holds nothing: one that nobody uses, one that torch.profiler does not record."""

from typing import Any

import pytest

from profkit.testing import Row, launch, operator
from tests.drawing import BASE, MS, failed_checks, in_steps, triaged

N_STEPS = 8
A_GPU: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 8 * 10**10}]}


def steps(*names: str, takes_ns: int) -> list[Row]:
    """Steps of 10 ms with one operator after the other."""

    def drawn(at: int, _: int) -> list[Row]:
        return [operator(name, at + n * takes_ns, at + (n + 1) * takes_ns) for n, name in enumerate(names)]

    return in_steps(N_STEPS, 10 * MS, drawn, begin_ns=BASE)


def test_a_gpu_that_nobody_uses_comes_before_all_else() -> None:
    of = triaged(steps("aten::addmm", "aten::relu", takes_ns=4_900_000), **A_GPU)
    one = of.found["device.unused"]
    assert one.title == "all work is on the CPU, while NVIDIA H100 stands idle"
    assert of.verdict.findings[0].id == "device.unused"
    assert "98.0 %" in one.evidence[0].statement


@pytest.mark.parametrize(
    ("call", "is_idle"),
    [("cudaGetDeviceCount", True), ("cudaDeviceSynchronize", True), ("cudaMalloc", False), ("cudaLaunchKernel", False)],
)
def test_a_profiler_that_asks_for_a_gpu_does_not_use_it(call: str, is_idle: bool) -> None:
    rows = steps("aten::addmm", "aten::relu", takes_ns=4_900_000)
    rows.append(launch(BASE + 79 * MS, BASE + 79 * MS + 10_000, correlation=0, name=call))
    assert ("device.unused" in triaged(rows, **A_GPU).found) is is_idle


@pytest.mark.parametrize(
    ("takes_ns", "told"), [(4 * MS, {}), (10_000, A_GPU)], ids=["no GPU is listed", "operators that only launch"]
)
def test_a_gpu_that_is_used_or_not_there(takes_ns: int, told: dict[str, Any]) -> None:
    assert "device.unused" not in triaged(steps("aten::addmm", "aten::relu", takes_ns=takes_ns), **told).found


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("aten::_mps_convolution", "Apple's GPU (MPS)"),
        ("aten::cudnn_convolution", "a CUDA device"),
        ("npu::npu_fusion_attention", "an Ascend NPU"),
        ("nccl:all_reduce", "a CUDA device"),
    ],
)
def test_no_verdict_where_the_work_is_on_a_device_without_a_record(name: str, device: str) -> None:
    verdict, found, rank = triaged(steps(name, name, "aten::addmm", takes_ns=400_000))
    (check,) = [check for check in rank.checks if check.id == "device.unrecorded"]
    assert not check.ok
    assert device in check.message
    assert verdict.bottleneck.value == "inconclusive"
    assert ("xctrace" in verdict.next_tool.command) == ("Apple" in device)
    assert [*found] == ["capture.quality"], "the host's time is no account of the device"
    spent = [e.statement for e in found["capture.quality"].evidence if "the host spends" in e.statement]
    assert name in spent[0]


def test_operators_of_a_cpu_need_no_other_device() -> None:
    rank = triaged(steps("aten::mkldnn_convolution", "aten::addmm", takes_ns=2 * MS)).rank
    assert "device.unrecorded" not in failed_checks(rank)


def copied(takes_ns: int = 3 * MS, child: str = "aten::copy_", **arguments: Any) -> list[Row]:
    """In each step random numbers on the CPU, 6 ms, and a copy of them into a new tensor."""
    rows = steps("aten::uniform_", takes_ns=6 * MS)
    for step in range(N_STEPS):
        at = BASE + step * 10 * MS + 6 * MS
        rows.append(operator("aten::_to_copy", at, at + takes_ns, **arguments))
        rows.append(operator("aten::empty_strided", at + 1000, at + 2000))
        rows.append(operator(child, at + 3000, at + takes_ns - 1000))
    return rows


def test_copies_to_another_device_say_that_it_was_not_recorded() -> None:
    verdict, found, rank = triaged(copied(), **A_GPU)
    assert "device.unused" not in found
    (check,) = [check for check in rank.checks if check.id == "device.unrecorded"]
    assert check.message.startswith("the program ran on the CPU and, by its copies to another device, on NVIDIA H100")
    assert verdict.bottleneck.value == "inconclusive"
    said = [e.statement for finding in found.values() for e in finding.evidence]
    assert "of the window, the host spends 60.0 % in aten::uniform_, 30.0 % in aten::_to_copy" in said


@pytest.mark.parametrize(
    "rows",
    [
        copied(takes_ns=MS // 2),
        copied(child="aten::fill_"),
        copied(Concrete_Inputs=["", "6", "", "", "", "False", ""], Input_Dims=[[9], [], [], [], [], [], []]),
    ],
    ids=["short", "no copy", "another number format"],
)
def test_conversions_are_no_copies_to_another_device(rows: list[Row]) -> None:
    assert "device.unused" in triaged(rows, **A_GPU).found


def test_a_recurrent_layer_on_a_cpu_asks_for_cudnn_and_does_not_use_it() -> None:
    of = triaged(steps("aten::cudnn_is_acceptable", "aten::gru", takes_ns=400_000))
    assert "device.unrecorded" not in failed_checks(of.rank)
    assert of.verdict.bottleneck.value != "inconclusive"

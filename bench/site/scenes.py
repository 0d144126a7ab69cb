"""`python -m bench.site scene sync -o sync.json`: simulated captures of GPU problems that no committed capture has.

Each is a job of eight steps on one simulated GPU, as Kineto would have written it: operators on the training thread,
launches on the host, kernels and copies on the device. The numbers are made up; the analysis is the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from profkit.testing import Row, kernel, launch, operator, span, to_json

N_STEPS: Final = 8
_US: Final = 1_000
_ORIGIN_NS: Final = 1_790_857_026_000_000_000
_GEMM: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off"
_STREAM: Final = 7


class _Scene:
    """Rows that are added one after the other; all times in us since the start."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._correlation = 0

    def at(self, time_us: float) -> int:
        return _ORIGIN_NS + round(time_us * _US)

    def work(self, issued_us: float, start_us: float, length_us: float, name: str, op: str) -> None:
        """An operator of 9 us, the launch call in it, and its kernel."""
        self._correlation += 1
        self.rows += [
            operator(op, self.at(issued_us), self.at(issued_us + 9)),
            launch(self.at(issued_us + 3), self.at(issued_us + 8), correlation=self._correlation),
            kernel(
                name, self.at(start_us), self.at(start_us + length_us), correlation=self._correlation, stream=_STREAM
            ),
        ]

    def copy(self, issued_us: float, held_us: float, start_us: float, length_us: float, *, to_device: bool) -> None:
        """An operator `aten::copy_` that issues a copy, and the copy; `held_us`: how long the call takes."""
        self._correlation += 1
        name = "Memcpy HtoD (Pageable -> Device)" if to_device else "Memcpy DtoH (Device -> Pageable)"
        n_bytes = round(length_us * (6_000 if to_device else 3_000))  # pageable memory: some GB/s
        args = {"device": 0, "stream": _STREAM, "correlation": self._correlation, "bytes": n_bytes}
        self.rows += [
            operator("aten::copy_", self.at(issued_us), self.at(issued_us + held_us + 6)),
            launch(
                self.at(issued_us + 2),
                self.at(issued_us + 2 + held_us),
                correlation=self._correlation,
                name="cudaMemcpyAsync",
            ),
            Row(
                name=name,
                cat="gpu_memcpy",
                start_ns=self.at(start_us),
                end_ns=self.at(start_us + length_us),
                pid=0,
                tid=_STREAM,
                args=args,
            ),
        ]

    def call(self, name: str, start_us: float, length_us: float) -> None:
        """A call of the CUDA runtime that starts nothing on the device."""
        self._correlation += 1
        self.rows.append(
            launch(self.at(start_us), self.at(start_us + length_us), correlation=self._correlation, name=name)
        )

    def step(self, number: int, start_us: float, end_us: float) -> None:
        """The marker of a step, and the Python function that makes it."""
        start, end = self.at(start_us), self.at(end_us)
        self.rows.append(span(f"ProfilerStep#{number}", start, end))
        args = {"Python id": number + 1, "Python parent id": None, "Python thread": 0}
        self.rows.append(
            Row(
                name="train.py(83): train_step",
                cat="python_function",
                start_ns=start + 1_000,
                end_ns=end - 1_000,
                args=args,
            )
        )


def _copies(scene: _Scene) -> Iterator[tuple[float, float]]:
    """The batch goes to the device from pageable memory, while nothing else runs; then 24 products."""
    now = 0.0
    for number in range(N_STEPS):
        length = 5_200 + 60 * (number % 3)
        scene.copy(now + 20, length + 10, now + 30, length, to_device=True)
        issued = device = now + length + 60
        for _ in range(24):
            device = max(device, issued + 12)
            scene.work(issued, device, 240, _GEMM, "aten::mm")
            issued, device = issued + 14, device + 241
        yield now, device + 30
        now = device + 30


def _syncs(scene: _Scene) -> Iterator[tuple[float, float]]:
    """After every eight kernels `loss.item()` waits until the device is done; then the host launches again."""
    now = 0.0
    for number in range(N_STEPS):
        began, issued = now, now + 25
        for _ in range(10):
            device = issued + 12
            for _ in range(8):
                device = max(device, issued + 12)
                scene.work(issued, device, 26 + number % 2, _GEMM, "aten::mm")
                issued, device = issued + 16, device + 28
            scene.rows.append(operator("aten::item", scene.at(issued + 2), scene.at(device + 40)))
            scene.rows.append(operator("aten::_local_scalar_dense", scene.at(issued + 4), scene.at(device + 38)))
            scene.copy(issued + 6, 5, device + 2, 2, to_device=False)
            scene.call("cudaStreamSynchronize", issued + 20, device + 30 - issued - 20)
            issued = device + 130
        now = issued
        yield began, now


def _allocations(scene: _Scene) -> Iterator[tuple[float, float]]:
    """The allocator gives blocks back to the driver and asks for them again: the device waits for both calls."""
    now = 0.0
    for number in range(N_STEPS):
        began, issued = now, now + 25
        for _ in range(6):
            device = issued + 12
            for _ in range(6):
                device = max(device, issued + 12)
                scene.work(issued, device, 150 + 2 * (number % 2), _GEMM, "aten::mm")
                issued, device = issued + 16, device + 153
            scene.rows.append(operator("aten::empty", scene.at(issued), scene.at(device + 920)))
            scene.call("cudaFree", issued + 2, device + 390 - issued)
            scene.call("cudaMalloc", device + 400, 510)
            issued = device + 925
        now = issued
        yield began, now


SCENES: Final[dict[str, Callable[[_Scene], Iterator[tuple[float, float]]]]] = {
    "copy": _copies,
    "sync": _syncs,
    "memory": _allocations,
}


def written(name: str, path: Path) -> Path:
    """Write the capture of one scene; gives its path."""
    scene = _Scene()
    for number, (start_us, end_us) in enumerate(SCENES[name](scene)):
        scene.step(number, start_us, end_us)
    device = {"id": 0, "name": "simulated GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    path.write_bytes(to_json(scene.rows, metadata={"deviceProperties": [device]}))
    return path

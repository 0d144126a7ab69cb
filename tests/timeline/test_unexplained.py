"""Names of kernels that leave something open are counted by time, and `profkit info` shows them."""

import json
from pathlib import Path

import pytest

from profkit.cli import group
from profkit.ingest.read import read_traces
from profkit.timeline.unexplained import unexplained
from tests.ingest.nsys_files import Export

US = 1000
NAMES = {"ampere_sgemm_64x64_nn": 50, "triton_tem_fused_mm_7": 30, "Kernel": 15, "probe": 4, "render": 1}


@pytest.fixture
def export() -> Export:
    return Export()


def written(export: Export, folder: Path, names: dict[str, int]) -> Path:
    """One kernel of each name, as long as given in us, one after the other."""
    at = 1_000 * US
    for name, length in names.items():
        export.kernel(at, at + length * US, name)
        at += (length + 1) * US
    return export.write(folder / "x.sqlite")


def test_names_that_leave_something_open_are_counted_by_time(export: Export, tmp_path: Path) -> None:
    (trace,) = read_traces(str(written(export, tmp_path, NAMES)))
    found = unexplained(trace)
    assert (found.n, found.n_names, found.share) == (4, 5, pytest.approx(0.5))
    assert [(one.name, one.is_product) for one in found.largest] == [
        ("triton_tem_fused_mm_7", True),
        ("Kernel", False),
        ("probe", False),
    ]
    assert [one.share for one in found.largest] == pytest.approx([0.3, 0.15, 0.04])


def test_info_shows_them(export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(export, tmp_path, NAMES))
    group.main(["info", path], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "names    4 of 5 kernel names do not tell all, 50.0 % of kernel time\n" in shown
    assert "30.0 %  triton_tem_fused_mm_7 (a product; its number format is open)\n" in shown
    assert "15.0 %  Kernel (what it does is open)\n" in shown
    group.main(["info", path, "-f", "json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["open_kernel_names"]["n"] == 4


def test_nothing_is_said_of_names_that_tell_all(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group.main(["info", str(written(export, tmp_path, {"ampere_sgemm_64x64_nn": 50}))], standalone_mode=False)
    assert "kernel names" not in capsys.readouterr().out

"""What `import profkit` and a plain triage do not load: heavy packages cost a user half a second each."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import profkit
from tests.conftest import ROOT
from tests.release.starts import faults, loaded, starts


def loaded_after(code: str, *, is_whole: bool = False) -> set[str]:
    """Give the packages that a fresh interpreter has loaded after `code`; `is_whole`: the modules in them, too."""
    name = "name" if is_whole else "name.partition('.')[0]"
    script = f"import sys\n{code}\nprint(*{{{name} for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["torch", "pandas", "rich", "numpy", "click", "msgspec", "hta", "nvtx"])
def test_importing_profkit_loads_nothing_heavy(package: str) -> None:
    assert package not in loaded_after("import profkit")


STARTS = starts(ROOT / "traces" / "data_cpu.pt.trace.json.gz")


def stderr_of(*words: str) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, cwd=ROOT).stderr


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_no_more_modules_than_wanted(name: str) -> None:
    assert list(faults(STARTS[name], stderr_of)) == []


def test_more_modules_than_wanted_are_told() -> None:
    start = starts("")["import profkit"]
    heavy = replace(start, words=("-c", "import profkit.model.table, profkit.units, profkit.errors"))
    told = list(faults(heavy, stderr_of))
    assert "numpy is loaded" in told
    assert any("modules of profkit are loaded, at most 3 are wanted" in fault for fault in told)
    assert any("at most 35 are wanted" in fault for fault in told)
    assert list(faults(replace(start, words=("-c", "pass")), stderr_of)) == ["profkit was not loaded"]


def test_names_of_modules_are_read_from_importtime() -> None:
    lines = (
        "import time: self [us] | cumulative | imported package",
        "import time:  12 |  34 |   json.decoder",
        "a warning",
    )
    assert loaded("\n".join(lines)) == ["json.decoder"]


def test_triage_as_json_loads_neither_torch_nor_pandas_nor_rich() -> None:
    trace = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
    code = (
        "from profkit.api import triage; from profkit.render import renderer_for;"
        f"renderer_for('triage', 'json')(triage([{str(trace)!r}]))"
    )
    assert not {"torch", "pandas", "rich", "click", "multiprocessing"} & loaded_after(code)


def test_triage_of_a_trace_without_shapes_loads_no_formulas_and_no_masked_arrays() -> None:
    trace = ROOT / "traces" / "kernel_cpu.pt.trace.json.gz"
    there = loaded_after(f"from profkit.api import triage; triage([{str(trace)!r}])", is_whole=True)
    unwanted = {"numpy.ma", "profkit.roof", "profkit.analyzers.roof.measured", "profkit.analyzers.allocations.measured"}
    assert "profkit.analyzers" in there
    assert not unwanted & there


def test_triage_of_one_trace_without_stacks_loads_neither_frames_nor_other_documents() -> None:
    trace = ROOT / "traces" / "fsdp_vlm_prefetch_on"
    (file,) = sorted(trace.glob("*.json.gz"))[:1]
    script = f"import sys; sys.argv[1:] = ['triage', {str(file)!r}]; import profkit.cli as cli, os\n"
    script += "os._exit = lambda code: print(*sys.modules, file=sys.stderr)\ncli.main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    documents = {"profkit.model.documents.fleet", "profkit.model.documents.handover", "profkit.model.documents.where"}
    frames = {"profkit.timeline.code.code", "profkit.timeline.code.frames", "profkit.timeline.code.join"}
    loaded_here = set(done.stderr.split())
    assert "profkit.render.terminal.page" in loaded_here
    assert not ({"rich", "shutil", "pkgutil", "glob", "numpy.ma"} | documents | frames) & loaded_here


def test_public_names_exist_and_are_sorted() -> None:
    assert list(profkit.__all__) == sorted(profkit.__all__)
    for name in profkit.__all__:
        assert getattr(profkit, name) is not None


def test_unknown_public_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        profkit.nothing  # noqa: B018


def test_nothing_is_imported_from_a_folder_with_a_strangers_files(tmp_path: Path) -> None:
    for name in ("click", "msgspec", "pandas", "fsspec", "ncu_report", "sqlite3"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the {name} of the working folder')", encoding="utf-8")
    trace = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
    call = [sys.executable, "-m", "profkit", "triage", str(trace), "-f", "json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

"""The wrappers against stand-ins that answer as versions of different age do and record what they are called with."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from profkit import signing
from profkit.capture.tools.launchers import cut, placed
from profkit.capture.tools.ncu import MOST_NAMED, NO_COLLECTIVES, target_of
from profkit.capture.tools.nsight import counters_are_closed
from profkit.capture.tools.nsys import remove_orphans
from profkit.errors import UsageError
from profkit.testing import kernel, launch, span, to_json
from tests.calling import profkit
from tests.capture.running import ROOT
from tests.conftest import rarely
from tests.special import within

HELPS = Path(__file__).resolve().parent / "helps"
STAND_IN = r"""#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(["{name}", *words]) + "\n")
if "--help" in words:
    exporting = "\t--type=\n\t-o, --output=\n\t--lazy=\n\t-f, --force-overwrite="
    print(open({help!r}).read() if "export" not in words else exporting)
elif "--version" in words:
    print("NVIDIA {name} version {version}.1.1-123")
elif "export" in words or "--import" in words:
    flags = dict(word.partition("=")[::2] for word in words)
    if "--output" in flags: open(flags["--output"], "w").write("sqlite")
    else: print('"ID","Kernel Name"')
else:
    at = words.index({program!r})
    flags = words[:at]
    report = next((word[9:] + ".nsys-rep" for word in flags if word.startswith("--output=")), "")
    report = report or flags[flags.index("--export") + 1] + ".ncu-rep"
    if {log!r} and "--log-file" in flags:
        open(flags[flags.index("--log-file") + 1], "w").write({log!r})
    else:
        open(report.replace("%q{{RANK}}", os.environ.get("RANK", "?")), "w").write("report")
    sys.exit(subprocess.run(words[at:]).returncode)
"""


class Machine:
    """A PATH with stand-ins for a GPU and for the tools asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls_file = folder / "calls"
        self.write("nvidia-smi", f"#!{sys.executable}\nprint('GPU 0: NVIDIA H100')\n")
        self.write(
            "job", f"#!{sys.executable}\nimport os, sys\nprint('job', *sys.argv[1:])\nsys.exit(int(sys.argv[-1]))\n"
        )

    def install(self, name: str, version: str, *, log: str = "") -> None:
        values = {"python": sys.executable, "name": name, "version": version, "program": "job", "log": log}
        text = STAND_IN.format(**values, calls=str(self.calls_file), help=str(HELPS / f"{name}_{version}.txt"))
        self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": f"{self.bin}{os.pathsep}/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        return profkit(*words, cwd=self.folder, env=env)

    def calls(self, name: str) -> list[list[str]]:
        lines = [json.loads(line) for line in self.calls_file.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == name and not {"--help", "--version"} & set(words)]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


NSYS = {
    "2020.3": [
        "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
        "--stop-on-range-end=true", "--kill=none", "--wait=primary", "--force-overwrite=true",
    ],
    "2026.1": [
        "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "--kill=none", "--wait=primary", "--cuda-graph-trace=graph",
        "--discard-environment=true", "--force-overwrite=true",
    ],
}  # fmt: skip
NCU = {
    "2020.1": [
        "--target-processes", "all", "--profile-from-start", "off", "--replay-mode", "kernel", "--set", "full",
        "--kernel-regex-base", "function", "--kernel-regex", "^layer_norm$", "--launch-skip", "7",
        "--launch-count", "1", "--clock-control", "none", "--nvtx", "--check-exit-code", "no",
    ],
    "2026.1": [
        "--target-processes", "all", "--profile-from-start", "off", "--replay-mode", "kernel", "--set", "full",
        "--import-source", "no", "--kernel-name-base", "function", "--kernel-name", "regex:^layer_norm$",
        "--launch-skip", "7", "--launch-count", "1", "--rename-kernels", "off", "--clock-control", "none", "--nvtx",
        "--check-exit-code", "no", "--config-file", "off",
    ],
}  # fmt: skip


@pytest.fixture
def ncu(machine):
    """The machine with an ncu of today on it."""
    machine.install("ncu", "2026.1")
    return machine


@pytest.mark.parametrize("version", NSYS)
def test_nsys_of_every_age_gets_what_it_knows(machine, version):
    machine.install("nsys", version)
    done = machine.run("nsys", "-o", "out", "--", "job", "--lr", "3")
    out = machine.folder / "out"
    run, export = machine.calls("nsys")
    assert run == [*NSYS[version], f"--output={out}/profile", "job", "--lr", "3"]
    assert export[:4] == ["export", "--type=sqlite", "--lazy=false", "--force-overwrite=true"]
    assert export[4:] == [f"--output={out}/profile.sqlite", f"{out}/profile.nsys-rep"]
    assert (done.returncode, done.stdout) == (3, "job --lr 3\n")
    assert f"profkit triage {out}/profile.sqlite" in done.stderr
    assert ("they hold the environment with its secrets" in done.stderr) == (version == "2020.3")


@pytest.mark.parametrize(("version", "sampled"), [("2020.3", "cpu"), ("2026.1", "process-tree")])
def test_cpu_samples_are_asked_for_in_the_words_of_the_version(machine, version, sampled):
    machine.install("nsys", version)
    machine.run("nsys", "-o", "out", "--also", "waits,samples", "--", "job", "0")
    run, _ = machine.calls("nsys")
    assert run[1:4] == ["--trace=cuda,nvtx,osrt", f"--sample={sampled}", "--cpuctxsw=process-tree"]


@pytest.mark.parametrize("version", NCU)
def test_ncu_of_every_age_gets_what_it_knows(machine, version):
    machine.install("ncu", version)
    name = "void at::native::layer_norm<float>(int)"
    done = machine.run("ncu", "-o", "out", "--kernel", name, "--skip", "7", "--", "job", "0")
    out = machine.folder / "out"
    run, page = machine.calls("ncu")
    tail = ["--log-file", f"{out}/ncu.log", "--force-overwrite", "--export", f"{out}/profile", "job", "0"]
    assert run == [*NCU[version], *tail]
    assert page[:5] == ["--import", f"{out}/profile.ncu-rep", "--csv", "--page", "raw"]
    assert done.returncode == 0
    assert (out / "profile.csv").exists()
    assert f"profkit kernels {out}/profile.ncu-rep" in done.stderr


def test_what_is_asked_for_beside(machine):
    machine.install("nsys", "2026.1")
    machine.run("nsys", "--also", "waits,graphs,operators,counters", "--whole", "--", "job", "0")
    flags = machine.calls("nsys")[0]
    wanted = {"--trace=cuda,nvtx,osrt", "--cuda-graph-trace=node", "--pytorch=autograd-nvtx"}
    assert {*wanted, "--gpu-metrics-devices=cuda-visible"} <= set(flags)
    assert not any(flag.startswith(("--capture-range", "--trace-fork")) for flag in flags)
    machine.install("nsys", "2020.3")
    machine.run("nsys", "--also", "waits,python", "--", "job", "0")
    assert "--trace=cuda,nvtx,osrt" in machine.calls("nsys")[-2]  # it has no python-gil
    refused = machine.run("nsys", "--also", "everything", "--", "job", "0")
    assert refused.returncode == 2
    assert "waits: " in refused.stderr


def test_a_dry_run_prints_a_line_that_runs(machine):
    machine.install("nsys", "2026.1")
    dry = machine.run("nsys", "--dry-run", "-o", "out", "--", "job", "it's", "0")
    assert dry.returncode == 0
    assert not (machine.folder / "out").exists()
    assert "--kill=none" in dry.stderr
    env = {"PATH": f"{machine.bin}{os.pathsep}/usr/bin:/bin"}
    pasted = subprocess.run(["sh", "-c", dry.stdout], env=env, capture_output=True, text=True, check=False)
    assert (pasted.returncode, pasted.stdout) == (0, "job it's 0\n")


def test_without_the_tool_a_dry_run_explains_and_a_run_is_one_line(machine):
    dry = machine.run("ncu", "--dry-run", "--", "job", "0")
    assert dry.returncode == 0
    assert "--launch-count 50" in dry.stdout
    assert "no ncu on PATH" in dry.stderr
    for name in ("nsys", "ncu"):
        done = machine.run(name, "--", "job", "0")
        assert (done.returncode, done.stdout) == (4, "")
        assert f"there is no {name} on PATH" in done.stderr
        assert "hint: " in done.stderr


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_a_program_that_is_not_python_is_recorded_whole(machine, tool):
    """Nothing else would open the range that the tool waits for, and the report would be empty."""
    machine.write("binary", "\x7fELF")
    for program, is_whole in (("binary", True), ("job", False), ("nowhere", False)):
        done = machine.run(tool, "--dry-run", "--", program, "0")
        assert ("is not Python" in done.stderr) is is_whole
        waits = "--capture-range=" in done.stdout or "--profile-from-start off" in done.stdout
        assert waits is not is_whole
        assert ("PROFKIT_CAPTURE" in done.stdout) is not is_whole


@pytest.mark.parametrize(("helps", "is_known"), [("--discard-environment=", True), ("--kill=", False)])
@pytest.mark.parametrize("ranks", ["all", "0"])
def test_without_the_tool_the_line_asks_whether_it_discards_the_environment(machine, helps, is_known, ranks):
    launcher = ("torchrun", "--nproc-per-node", "1") if ranks == "0" else ()
    done = machine.run("nsys", "--ranks", ranks, "--dry-run", "--", *launcher, "job.py", "0")
    assert "old versions have no --discard-environment" in done.stderr
    machine.write("nsys", f'#!/bin/sh\n[ "$2" = --help ] && echo "{helps}" || echo ran "$@" >>{machine.calls_file}\n')
    machine.write("torchrun", '#!/bin/sh\nexport RANK=0\nshift 3\nexec "$@"\n')
    env = {**os.environ, "PATH": f"{machine.bin}{os.pathsep}/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-c", done.stdout], check=True, env=env, cwd=machine.folder)
    (ran,) = machine.calls_file.read_text().splitlines()
    assert ("--discard-environment=true" in ran.split()) is is_known
    assert ran.startswith("ran profile --trace=cuda,nvtx")


def test_a_python_job_recorded_whole_has_its_steps_marked(machine):
    """Without CUDA nothing opens a range; the marks alone say where steps lie."""
    machine.install("nsys", "2026.1")
    dry = machine.run("nsys", "--whole", "--dry-run", "--", "job.py", "0")
    assert "--capture-range=" not in dry.stdout
    told = shlex.split(dry.stdout)
    options = json.loads(next(word for word in told if word.startswith("PROFKIT_CAPTURE=")).partition("=")[2])
    assert (options["marks_only"], options["baseline"], options["steps"]) == (True, 1, 20)
    chosen = machine.run("nsys", "--whole", "--steps", "7", "--dry-run", "--", "job.py", "0").stdout
    assert '"steps":7' in chosen
    assert "PROFKIT_CAPTURE" not in machine.run("ncu", "--whole", "--dry-run", "--", "job.py", "0").stdout


def test_without_a_gpu_one_line(machine):
    machine.install("nsys", "2026.1")
    (machine.bin / "nvidia-smi").unlink()
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    done = machine.run("nsys", "--", "job", "0")
    assert done.returncode == 4
    assert "GPU" in done.stderr
    assert machine.run("nsys", "--whole", "--", "job", "5").returncode == 5


@pytest.mark.parametrize(
    ("log", "said", "way_out"),
    [
        ("ERR_NVGPUCTRPERM - The user does not have permission to access", "ERR_NVGPUCTRPERM", "SYS_ADMIN"),
        (
            "Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM)",
            "driver resource",
            "dcgmi profiling --pause",
        ),
    ],
    ids=["closed counters", "another tool on the counters"],
)
def test_counters_that_cannot_be_read_are_exit_4_with_the_way_out(machine, log, said, way_out):
    machine.install("ncu", "2026.1", log=f"==ERROR== {log}")
    done = machine.run("ncu", "--kernel", "f", "--", "job", "0")
    assert done.returncode == 4
    assert said in done.stderr
    assert way_out in done.stderr
    assert "--skip" not in done.stderr


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_what_to_run_next_can_be_pasted(machine, name):
    machine.install(name, "2026.1")
    done = machine.run(name, "-o", "out of it", "--", "job", "0")
    assert done.returncode == 0
    command, path = ("triage", "profile.sqlite") if name == "nsys" else ("kernels", "profile.ncu-rep")
    assert shlex.split(done.stderr.splitlines()[-1]) == ["profkit", command, str(machine.folder / "out of it" / path)]


SECRET = "hf_" + "a1B2" * 8
RAW = f"==ERROR== \x1b]52;c;eA==\x07 cannot log in, token={SECRET}"


@pytest.mark.parametrize("kind", ["long", "link", "pipe"])
def test_the_log_of_ncu_is_a_file_read_up_to_a_bound(machine, kind, monkeypatch):
    from profkit.cli import ncu

    log = machine.folder / "ncu.log"
    monkeypatch.setattr(ncu, "_MOST_LOG_BYTES", 100)
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "link":
        (machine.folder / "other").write_text("of somebody")
        log.symlink_to(machine.folder / "other")
    else:
        log.write_text("x" * 1000 + "\n==ERROR== last")
    said = within(5, lambda: ncu._log_of(log))
    assert len(said) <= 100
    assert ("==ERROR== last" in said) == (kind == "long")
    assert "somebody" not in said


def test_the_words_of_ncu_are_text_without_secrets(machine):
    machine.install("ncu", "2026.1", log=RAW)
    done = machine.run("ncu", "--", "job", "0")
    assert (done.returncode, SECRET in done.stderr) == (4, False)
    assert "cannot log in, token=[redacted]" in done.stderr
    assert "\x1b" not in done.stderr


def test_the_words_of_an_export_are_text_without_secrets(machine):
    machine.install("nsys", "2026.1")
    stand_in = (machine.bin / "nsys").read_text()
    said = RAW.encode() + b"\xff\n"
    fails = f"if 'export' in words and '--help' not in words:\n    os.write(2, {said!r}); sys.exit(1)\n"
    machine.write("nsys", stand_in.replace('if "--help" in words', fails + 'if "--help" in words', 1))
    done = machine.run("nsys", "--", "job", "0")
    assert "could not be exported" in done.stderr
    assert (SECRET in done.stderr, "\x1b" in done.stderr, done.returncode) == (False, False, 0)


@pytest.mark.parametrize("place", ["link", "folder"])
def test_the_page_beside_a_report_is_written_through_no_link(ncu, place):
    out = ncu.folder / "out"
    out.mkdir()
    (ncu.folder / "victim").write_text("mine")
    page = out / "profile.csv"
    page.mkdir() if place == "folder" else page.symlink_to(ncu.folder / "victim")
    done = ncu.run("ncu", "-o", "out", "--", "job", "0")
    assert done.returncode == 0, done.stderr
    assert (ncu.folder / "victim").read_text() == "mine"
    assert page.is_file() == (place == "link")
    assert ("profile.csv could not be written" in done.stderr) == (place == "folder")
    assert f"profkit kernels {out}/profile.ncu-rep" in done.stderr


def test_a_page_may_hold_any_bytes(machine):
    machine.install("ncu", "2026.1")
    stand_in = (machine.bin / "ncu").read_text()
    prints = "elif '--import' in words:\n    os.write(1, bytes([34, 255, 34]))\n"
    machine.write("ncu", stand_in.replace('elif "--version" in words', prints + 'elif "--version" in words', 1))
    done = machine.run("ncu", "-o", "out", "--", "job", "0")
    assert done.returncode == 0, done.stderr
    assert (machine.folder / "out" / "profile.csv").read_bytes() == b'"\xff"'


def test_no_report_is_exit_4_unless_the_script_failed(machine):
    machine.install("ncu", "2026.1", log="==WARNING== No kernels were profiled.")
    assert machine.run("ncu", "--", "job", "0").returncode == 4
    assert machine.run("ncu", "--", "job", "7").returncode == 7


ORPHANS = """
import os, sys
told = "\\n".join(f"{key}={value}" for key, value in os.environ.items())
for name, text in (("ours", told), ("others", "SECRET=1")):
    if "--output" in " ".join(sys.argv):
        with open(f"{os.environ['TMPDIR']}/nsys-report-{name}.qdstrm", "w") as file:
            file.write(text)
"""


@pytest.mark.parametrize("flags", [(), ("--whole",)])
def test_a_recording_without_a_report_is_removed_for_it_holds_the_environment(machine, monkeypatch, flags):
    monkeypatch.setenv("TMPDIR", str(machine.folder))
    machine.write("nsys", f"#!{sys.executable}{ORPHANS}")
    (machine.folder / "before.qdstrm").write_text("SECRET=1")
    done = machine.run("nsys", *flags, "--", "job", "0")
    assert done.returncode == 4
    assert sorted(path.name for path in machine.folder.glob("*.qdstrm")) == [
        "before.qdstrm",
        "nsys-report-others.qdstrm",
    ]
    assert f"removed {machine.folder}/nsys-report-ours.qdstrm: " in done.stderr
    assert ("--whole waits" in done.stderr) is (not flags)
    assert "nsys status --environment" in done.stderr


@pytest.mark.parametrize("has_users", [True, False])
def test_only_the_recording_that_holds_the_mark_and_is_new_goes(tmp_path, monkeypatch, has_users):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    if not has_users:
        monkeypatch.delattr(os, "getuid", raising=False)
    for name, mark in (("ours", b"mark-1"), ("theirs", b"mark-2"), ("old", b"mark-1")):
        (tmp_path / f"{name}.qdstrm").write_bytes(b"head " + mark)
    os.utime(tmp_path / "old.qdstrm", (1, 1))
    assert remove_orphans(tmp_path, "mark-1", since_s=2) == (tmp_path / "ours.qdstrm",)
    assert sorted(path.stem for path in tmp_path.glob("*.qdstrm")) == ["old", "theirs"]


def test_a_former_runs_report_is_none_of_this_one(machine):
    machine.install("ncu", "2026.1")
    assert machine.run("ncu", "-o", "out", "--", "job", "0").returncode == 0
    machine.install("ncu", "2026.1", log="==WARNING== No kernels were profiled.")
    assert machine.run("ncu", "-o", "out", "--overwrite", "--", "job", "0").returncode == 4
    assert machine.run("ncu", "-o", "out", "--", "job", "0").returncode == 2


def test_the_driver_is_asked_before(tmp_path):
    parameters, status = tmp_path / "params", tmp_path / "status"
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    for held, is_closed in (("0000000000000000", True), ("00000000a80425fb", True), ("000001ffffffffff", False)):
        status.write_text(f"Name:\tx\nCapEff:\t{held}\n")
        assert counters_are_closed(parameters, status) is is_closed
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    status.write_text("CapEff:\t0000000000000000\n")
    assert not counters_are_closed(parameters, status)
    assert not counters_are_closed(tmp_path / "none", status)


def hot_trace(**metadata) -> bytes:
    """Two steps of five launches of two functions; the hot name is the third of its function."""
    rows, correlation = [], 0
    for step in range(2):
        begin = 10**9 + step * 10**6
        rows.append(span(f"ProfilerStep#{step}", begin, begin + 10**6))
        for place, (name, length) in enumerate(
            [("f<1>", 10), ("g", 20), ("f<1>", 10), ("f<2>", 90 + step), ("f<1>", 9)]
        ):
            at, correlation = begin + 150_000 * place + 1000, correlation + 1
            rows.append(launch(at, at + 2000, correlation=correlation))
            rows.append(kernel(f"void ns::{name}(int)", at + 5000, at + 5000 + length * 1000, correlation=correlation))
    return to_json(rows, metadata=metadata)


def test_the_hot_kernel_and_its_launch_come_from_the_trace(ncu):
    (ncu.folder / "t.json").write_bytes(hot_trace(profkit_command="job --lr 0"))
    assert ncu.run("ncu", "--from", "t.json", "--", "job", "--lr", "0").returncode == 0
    flags = ncu.calls("ncu")[0]
    assert flags[flags.index("--kernel-name") + 1] == "regex:^f$"
    assert flags[flags.index("--launch-skip") + 1] == "2"
    assert flags[-3:] == ["job", "--lr", "0"]
    both = ncu.run("ncu", "--from", "t.json", "--kernel", "f", "--", "job", "0")
    assert both.returncode == 2


def test_a_command_in_a_trace_is_printed_and_not_run(ncu):
    (ncu.folder / "t.json").write_bytes(hot_trace(profkit_command="bash -c 'touch PWN; id'"))
    done = ncu.run("ncu", "--from", "t.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "profkit: t.json was recorded with: bash -c 'touch PWN; id'\n" in done.stderr
    assert "--run-recorded" in done.stderr
    assert "profkit ncu --from t.json -- COMMAND" in done.stderr
    assert not ncu.calls_file.exists()
    assert not (ncu.folder / "PWN").exists()


def test_a_command_in_a_trace_is_run_on_demand_as_words(ncu):
    (ncu.folder / "t.json").write_bytes(hot_trace(profkit_command="job '$(touch PWN)' '; touch PWN' 0"))
    assert ncu.run("ncu", "--from", "t.json", "--dry-run").stdout == ""  # it may be pasted
    dry = ncu.run("ncu", "--from", "t.json", "--dry-run", "--run-recorded")
    assert dry.stdout.endswith(" job '$(touch PWN)' '; touch PWN' 0\n")
    done = ncu.run("ncu", "--from", "t.json", "--run-recorded")
    assert done.returncode == 0
    assert "profkit: t.json was recorded with: job '$(touch PWN)' '; touch PWN' 0\n" in done.stderr
    assert ncu.calls("ncu")[0][-4:] == ["job", "$(touch PWN)", "; touch PWN", "0"]
    assert not (ncu.folder / "PWN").exists()
    for words in (("--run-recorded", "--", "job", "0"), ("--from", "t.json", "--run-recorded", "--", "job", "0")):
        assert ncu.run("ncu", *words).returncode == 2


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("job 0; touch PWN", "names no command that can be run"),
        ("job \x1b]52;c;x\x07", "names no command that can be run"),
        ("job --token '[redacted]'", "secrets were removed"),
        (None, "names no command that can be run"),
    ],
)
def test_what_is_no_command_is_not_run_on_demand_either(ncu, command, says):
    (ncu.folder / "t.json").write_bytes(hot_trace(**({} if command is None else {"profkit_command": command})))
    done = ncu.run("ncu", "--from", "t.json", "--run-recorded")
    assert done.returncode == 2
    assert says in done.stderr
    assert "give the whole command" in done.stderr or "give it" in done.stderr
    assert not (ncu.folder / "PWN").exists()


def test_triage_names_the_same_launch(machine):
    mark = signing.mark_of(signing.COMMAND, b"job 0")
    (machine.folder / "t.json").write_bytes(hot_trace(profkit_command="job 0", profkit_command_mark=mark))
    report = json.loads(machine.run("triage", "t.json", "-f", "json").stdout)
    assert report["verdict"]["next_tool"]["command"] in {
        "profkit ncu --kernel f --skip 2 -- job 0",
        "profkit nsys --also waits -- job 0",
    }


@pytest.mark.parametrize("mark", [{}, {"profkit_command_mark": "0" * 64}])
def test_a_command_that_anybody_may_have_written_is_shown_and_not_repeated(machine, mark):
    (machine.folder / "t.json").write_bytes(hot_trace(profkit_command="rm -r data", **mark))
    report = json.loads(machine.run("triage", "t.json", "-f", "json").stdout)
    assert report["ranks"][0]["recorded_command"] == "rm -r data"
    commands = re.findall(r'"command": "([^"]*)"', json.dumps(report))
    assert commands
    assert not [command for command in commands if "rm" in command.split()]
    shown = machine.run("triage", "t.json").stdout
    shown = " ".join(shown.split())
    assert "recorded with rm -r data (says the file); --command puts yours in place of train.py" in shown


AS_ON_CUDA = """
from tests.capture import no_dynamo
import time, torch
import _profkit_capture.inside.clock as clock

class Event:
    def __init__(self, **_): pass
    def record(self): self.ns = time.perf_counter_ns()
    def query(self): return True
    def elapsed_time(self, other): return (other.ns - self.ns) / 1e6

seen = []
clock.cuda_in_use = lambda: True
torch.cuda.Event, torch.cuda.is_current_stream_capturing = Event, lambda: False
torch.cuda.synchronize = lambda: None
torch.cuda.profiler.start, torch.cuda.profiler.stop = lambda: seen.append("start"), lambda: seen.append("stop")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
for step in range(30):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    seen.append(step)
print(*seen)
"""
"""A loop on the CPU that torch believes to run on a GPU."""


@pytest.mark.torch
@pytest.mark.parametrize(("name", "version"), [("nsys", "2026.1"), rarely(3, "ncu", "2020.1")])
def test_the_range_lies_around_the_steady_steps(machine, name, version):
    pytest.importorskip("torch")
    machine.write("job", f"#!{sys.executable}\n{AS_ON_CUDA}")
    machine.install(name, version)
    done = machine.run(name, "-o", "out", "--warmup", "3", "--", "job")
    seen = done.stdout.split()
    recorded = seen[seen.index("start") + 1 : seen.index("stop")]
    assert len(recorded) == (3 + 5 if name == "nsys" else 2)  # nsys begins before the warm-up, and records 5 steps
    assert f"steps 17 to {21 if name == 'nsys' else 18}, by the optimizer's step" in done.stderr
    assert re.search(rf" under {name} \(\d+\.\d\dx\)", done.stderr)
    assert done.returncode == 0


# --------------------------------------------------------------------------------------------- targets and launchers


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "Memcpy HtoD (Pinned -> Device)"])
def test_a_collective_is_refused_since_it_would_wait_for_ever(name):
    with pytest.raises(UsageError):
        target_of(name, skip=None, count=None)


def test_names_are_escaped_and_anchored():
    assert target_of("triton_poi_fused_0", skip=3, count=None).pattern == "^triton_poi_fused_0$"
    numba = target_of("copy_blocked[v1,cw51](Array<long>)", skip=None, count=None).pattern
    assert re.search(numba, "copy_blocked")
    assert re.search(numba, "copy_blocked[v1,cw51]")
    assert not re.search(numba, "copy_blocked_2")
    assert target_of("regex:a|b", skip=None, count=2).pattern == "a|b"
    assert target_of("k" * 5_000, skip=None, count=None).pattern == "^" + "k" * MOST_NAMED
    for name in ("()", "CUDA graph 4"):
        with pytest.raises(UsageError):
            target_of(name, skip=None, count=None)


def test_without_a_name_everything_but_collectives():
    pattern = target_of(None, skip=None, count=None).pattern
    assert pattern == NO_COLLECTIVES
    assert re.search(pattern, "vectorized_elementwise_kernel")
    for name in ("ncclDevKernel_AllReduce", "ncclKernel_X", "two_shot_all_reduce_kernel", "nvshmem_barrier"):
        assert not re.search(pattern, name)


TOOL = ("nsys", "profile", "-o", "rank%q{RANK}")


PLACED = {
    "python train.py --x": "T python train.py --x",
    "torchrun --nproc-per-node 4 t.py --x": "torchrun --nproc-per-node 4 --no-python T python -u t.py --x",
    "torchrun --standalone --nnodes=1 -m p.t a": "torchrun --standalone --nnodes=1 --no-python T python -u -m p.t a",
    "python3 -m torch.distributed.run t.py": "python3 -m torch.distributed.run --no-python T python3 -u t.py",
    "torchrun --no-python --nnodes 2 bash run.sh": "torchrun --nnodes 2 --no-python T bash run.sh",
    "srun -n 4 python3.11 t.py": "srun -n 4 T python3.11 t.py",
    "bash run.sh": "T bash run.sh",
    "torchrun --help": "T torchrun --help",
}


@pytest.mark.parametrize(("command", "expected"), PLACED.items())
def test_the_tool_stands_between_launcher_and_python(command, expected, monkeypatch):
    monkeypatch.setattr("profkit.capture.tools.launchers._python_beside", lambda _: "python")
    words = placed(cut(shlex.split(command)), TOOL, "all")
    assert words == tuple(shlex.split(expected.replace("T", shlex.join(TOOL), 1)))


def test_chosen_ranks_run_under_the_tool_and_the_others_as_they_are():
    launch = cut(["python", "-m", "torch.distributed.run", "x.py"])
    _, _, _, _, *ranked = placed(launch, ("echo", "tool"), "0,3")
    plain = [*ranked[:-3], "echo", "plain"]
    under, alone = (ranked, "tool python -u x.py\n"), (plain, "plain\n")
    for rank, (words, expected) in (("0", under), ("3", under), ("1", alone)):
        env = {"RANK": rank, "PATH": "/usr/bin:/bin"}
        assert subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout == expected

"""The gates of CI: what fails, which number over which limit; settings of pyproject.toml, what they may not hold."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from profkit.cli.shared.settings import settings
from profkit.cli.triage import gate_of, passed
from profkit.errors import UsageError
from profkit.model.finding import Severity
from tests.calling import profkit
from tests.conftest import ROOT
from tests.render import reports

DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
BASELINE = ROOT / "traces" / "baseline_cpu.pt.trace.json.gz"
KERNEL = ROOT / "traces" / "kernel_cpu.pt.trace.json.gz"


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, table: str) -> None:
    (folder / "pyproject.toml").write_text(table)


def triage(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return profkit("triage", *words, "-f", "json", cwd=folder)


def test_what_fails_is_said_with_its_number_and_limit(folder: Path) -> None:
    done = triage(folder, DATA, "--fail-on", "high")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == "profkit: --fail-on high: 1 finding fails; exit code 1"
    assert second.startswith("  input.starved: 94.0 % of the window, high is from 15.0 %: the training thread waits ")


def test_what_passes_is_said_too(folder: Path) -> None:
    done = triage(folder, BASELINE, "--fail-on", "info")
    assert (done.returncode, done.stderr) == (0, "profkit: --fail-on info: nothing was found; exit code 0\n")
    assert triage(folder, DATA).stderr == ""
    assert triage(folder, DATA, "--fail-on", "never").stderr == ""


def test_the_largest_finding_is_named_where_none_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = replace(reports.overhead(), findings=(reports.SYNC, reports.UNFUSED))
    assert passed(small, gate_of("high"))
    said = capsys.readouterr().err
    assert "the largest is kernel.unfused (medium, 6.1 % of the window; high is from 15.0 %); exit code 0" in said


def test_a_severity_that_is_not_of_the_share_is_said_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = replace(reports.SYNC, severity=Severity.HIGH)
    assert not passed(replace(reports.overhead(), findings=(odd,)), gate_of("high"))
    assert "host.sync: severity high, whatever its share: 2 blocking calls per step" in capsys.readouterr().err


def test_ranks_with_the_same_finding_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = tuple(replace(reports.LAUNCH, rank=rank, fraction=0.2 + rank / 10) for rank in range(2))
    assert not passed(replace(reports.two_ranks(), findings=ranks), gate_of("high"))
    assert capsys.readouterr().err.splitlines()[1].startswith("  host.launch_bound of rank 1: ")


def test_settings_are_those_of_the_nearest_table(folder: Path) -> None:
    write(folder, '[tool.profkit]\nfail-on = "medium"\n')
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    write(folder / "a", "[project]\nname = 'profkit-user'\n")
    done = triage(inner, DATA)
    assert done.returncode == 1
    assert done.stderr.startswith("profkit: fail-on = 'medium' of ../../pyproject.toml: 1 finding fails; exit code 1\n")
    write(inner, '[tool.profkit]\nfail-on = "never"\n')
    assert (triage(inner, DATA).returncode, triage(inner, DATA, "--fail-on", "high").returncode) == (0, 1)


def test_a_flag_is_stronger_and_never_turns_the_gate_off(folder: Path) -> None:
    write(folder, '[tool.profkit]\nfail-on = "high"\n[tool.profkit.limits]\n"input.starved" = "1%"\n')
    assert triage(folder, DATA).returncode == 1
    assert triage(folder, DATA, "--fail-on", "never").returncode == 0


@pytest.mark.parametrize("key", ['"input.starved"', "input.starved"])
@pytest.mark.parametrize(
    ("limit", "code", "says"),
    [
        ("90%", 1, "input.starved: 94.0 % of the window, limit 90.0 % (pyproject.toml)"),
        ("95%", 0, "(high, 94.0 % of the window; limit 95.0 %); exit code 0"),
        ("never", 0, "it never fails"),
    ],
)
def test_a_finding_with_its_own_limit_is_judged_by_that(
    key: str, limit: str, code: int, says: str, folder: Path
) -> None:
    write(folder, f'[tool.profkit.limits]\n{key} = "{limit}"\n')
    for words in ((), ("--fail-on", "high")):
        done = triage(folder, DATA, *words)
        assert done.returncode == code
        assert says in done.stderr
    assert triage(folder, KERNEL).returncode == 0
    assert triage(folder, KERNEL, "--fail-on", "high").returncode == 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[tool.profkit]\nfail_on = 'high'", r"\[tool\.profkit\] has no key 'fail_on'; did you mean fail-on"),
        ("[tool.profkit]\nthreshold = 3", "has no key 'threshold'"),
        ("[tool.profkit]\nfail-on = 'severe'", "fail-on is 'severe'"),
        ("[tool.profkit]\nfail-on = 3", "fail-on is 3"),
        ("[tool.profkit]\nfail-on-regression = 0.03", r"fail-on-regression is 0\.03, no percentage"),
        ("[tool.profkit]\nlimits = 3", "limits is no table"),
        ("[tool.profkit.limits]\n'input.starve' = '3%'", r"no finding 'input\.starve'; did you mean input\.starved\?"),
        ("[tool.profkit.limits]\n'input.starved' = '300%'", r"input\.starved is '300%', no percentage"),
        ("[tool.profkit.limits]\n'input.starved' = 3", "is 3, no percentage"),
        ("[tool]\nprofkit = 3", r"tool\.profkit is no table"),
        ("[tool.profkit\n", r"pyproject\.toml is no TOML: .*line 1"),
        ("# tool.profkit\n" + "a = " + "[" * 20_000, "is no TOML"),
    ],
)  # fmt: skip
def test_what_the_table_cannot_hold_is_told(table: str, says: str, folder: Path) -> None:
    write(folder, table)
    with pytest.raises(UsageError, match=says):
        settings()


@pytest.mark.parametrize(
    "table",
    [
        "[tool.profkit]\nfail-on = 'high'",
        "  [ tool . profkit ]\nfail-on = 'high'",
        "[\"tool\".'profkit']\nfail-on = 'high'",
        "[tool]\nprofkit.fail-on = 'high'",
        "['tool']\nprofkit = {fail-on = 'high'}",
        "tool = {profkit = {fail-on = 'high'}}",
        "\"tool\" . profkit . fail-on = 'high'",
        "a = 1\r\n\ttool.\"profkit\".fail-on = 'high'",
    ],
)
def test_the_table_is_found_however_toml_names_it(table: str, folder: Path) -> None:
    write(folder, table)
    assert settings().fail_on is Severity.HIGH


def test_a_file_that_names_profkit_elsewhere_need_not_be_understood(folder: Path) -> None:
    write(folder, "[project]\ndependencies = ['profkit']\n[tool.other]\n[[[")
    assert settings().origin == ""


def test_a_wrong_table_is_told_before_traces_are_read(folder: Path) -> None:
    write(folder, "[tool.profkit]\nfail_on = 'high'\n")
    for words in (("triage", "none.json"), ("compare", "none.json", "other.json")):
        done = profkit(*words, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert "it knows fail-on, fail-on-regression, limits" in done.stderr
    assert triage(folder, DATA, "--fail-on", "never").returncode == 0


def test_a_file_that_is_not_about_profkit_is_not_understood(folder: Path) -> None:
    write(folder, "this is [ no TOML\n")
    assert settings().fail_on is None
    (folder / "pyproject.toml").unlink()
    (folder / "pyproject.toml").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"cannot read pyproject\.toml"):
        settings()
    (folder / "pyproject.toml").unlink()
    os.mkfifo(folder / "pyproject.toml")
    with pytest.raises(UsageError, match=r"cannot read pyproject\.toml"):
        settings()


def test_the_gate_of_a_comparison_has_a_default_too(folder: Path) -> None:
    rows = [f"{arm},{10 + noise / 10 + (arm == 'b')}" for arm in "ab" for noise in range(5)]
    (folder / "t.csv").write_text("\n".join(["arm,step_ms", *rows]))
    assert profkit("compare", "t.csv", cwd=folder).returncode == 0
    write(folder, '[tool.profkit]\nfail-on-regression = "3%"\n')
    done = profkit("compare", "t.csv", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("profkit: fail-on-regression = 3.0 % of pyproject.toml: regressed by ")
    for flag, code in (("3%", 1), ("50%", 0), ("never", 0)):
        done = profkit("compare", "t.csv", "--fail-on-regression", flag, cwd=folder)
        assert done.returncode == code
        assert done.stderr.startswith("profkit: --fail-on-regression " if flag != "never" else "")
    assert done.stderr == ""

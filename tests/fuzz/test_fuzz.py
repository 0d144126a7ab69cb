"""The fuzzer finds what it is told to look for, always tries the same inputs, and outlives what they do to it."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import IN_FULL, ROOT
from tests.fuzz import bases, events, sql, values
from tests.fuzz.__main__ import summary
from tests.fuzz.documents import Case, File, Json, Lines, Secret, Sql
from tests.fuzz.kinds import KINDS, case_of, digest, nsys
from tests.fuzz.minimise import Shrinker
from tests.fuzz.oracles import ORACLES, faults_of, live_in
from tests.fuzz.supervisor import CHUNK, Plan, Supervisor
from tests.fuzz.target import LIMIT_S, MOST_BYTES, Outcome, TooSlow

CASE = Case(kind="kineto", files={}, commands=[])
VERDICT = {"speedup_ceiling": 1.5, "recoverable_ns": 3, "step_ns": 9, "confidence": 0.5}
RANK = {
    "window": {"duration_ns": 10},
    "devices": [{"budget_ns": {"compute": 6, "idle": 4}}],
    "steps": {"mean_ns": 5},
}
DOCUMENT: dict[str, Any] = {"verdict": VERDICT, "ranks": [RANK], "findings": []}


def said(text: str = "", *, args: str = "triage t.json", **more: Any) -> Outcome:
    return Outcome(args=args.split(), code=more.pop("code", 0), out=text, **more)


def document(**changes: Any) -> Outcome:
    return said(json.dumps(DOCUMENT | changes), args="triage -f json t.json")


def raised(error: BaseException) -> Outcome:
    return said(error=error, code=70, where=("ingest/a.py:one", "ingest/b.py:two"))


def named(number: int) -> str:
    """The command line of a capture, which has a name of its own."""
    return f'PROFKIT_CAPTURE=\'{{"steps":2,"capture_id":"{number:032x}"}}\' ncu'


FLEET_ROW = [
    f"{name}_ns" for name in ("step", "data", "compute", "host", "copy", "device", "comm_wait", "comm_transfer")
]
PART = {"baseline_ns": 1, "candidate_ns": 2, "change_ns": 1}
WHOLE = PART | {"parts": [PART]}


def compared(**changes: Any) -> Outcome:
    whole = {"waterfall": WHOLE, "compute": None, "comm": None}
    return said(json.dumps(whole | changes), args="compare -f json a b")


BAD: dict[str, list[Outcome]] = {
    "crash": [raised(ValueError("x")), raised(AssertionError())],
    "exit_code": [said(code=5), said(code=130)],
    "slow": [said(wall_s=LIMIT_S + 1), raised(TooSlow())],
    "memory": [said(peak_bytes=MOST_BYTES + 1), raised(MemoryError())],
    "traceback": [said(err="Traceback (most recent call last):\n")],
    "warning": [said(warned=["RuntimeWarning: overflow (cpu.py:3)"])],
    "complaint": [
        said(code=3),
        said(code=3, err="what a trace"),
        said(code=3, err="profkit: a\nb\n"),
        said(err="x" * 501),
    ],
    "files": [
        said(acts=["writes /etc/passwd"]),
        said(acts=["subprocess.Popen id"]),
        said(new_files=["PWN"]),
        said(acts=["socket.connect ()"]),
        said(new_files=["other.md"], args="triage t.json -o out.md"),
    ],
    "both_ways": [said(unlike="one trace against another")],
    "control": [
        said("a\x1b]52;c;x\x07"),
        said("a\u202eb"),
        said("\x1b[31mred\x1b[0m"),
        said(err="a\rb"),
        said("\x9b", args="triage --color t.json"),
    ],
    "secret": [said("key=s3cret!"), said(err="s3c\n  ret!")],
    "percent": [
        said("GPU idle 112.0 %"),
        said("- **x** (`precision.fallback`, low, 3,243 % of the window)"),
        said("idle -3.0 %"),
    ],
    "parses": [
        said("{", args="info -f json t"),
        said('{"a": NaN}', args="info -f json t"),
        said('{"a": ' + "9" * 40 + "}", args="kernels -f json t"),
    ],
    "obeys_schema": [document(), said("{}", args="compare -f json a b"), said("[]", args="kernels a -f json")],
    "budget": [
        document(ranks=[RANK | {"window": {"duration_ns": 11}}]),
        document(ranks=[RANK | {"devices": [{"budget_ns": {"compute": 11, "idle": -1}}]}]),
    ],
    "fraction": [
        document(verdict=VERDICT | {"confidence": 1.2}),
        document(findings=[{"fraction": -0.1, "recoverable_ns": 0, "id": "x"}]),
        document(evidence=[{"unit": "fraction", "value": 3.6, "metric": "m"}]),
        document(table={"title": "t", "headers": ["share"], "units": ["fraction"], "rows": [[1.5]]}),
        document(ranks=[RANK | {"devices": [RANK["devices"][0] | {"occupancy": {"compute": 1.01}}]}]),  # type: ignore[operator, index]
    ],
    "ceiling": [
        document(verdict=VERDICT | {"speedup_ceiling": 0.9}),
        document(verdict=VERDICT | {"recoverable_ns": 10}),
        document(verdict=VERDICT | {"recoverable_ns": -1}),
        document(findings=[{"recoverable_ns": -1, "id": "x", "fraction": 0}]),
    ],
    "negative": [document(ranks=[RANK | {"steps": {"mean_ns": -5}}])],
    "sums": [
        document(fleet={"rows": [dict.fromkeys(FLEET_ROW, 1)]}),
        compared(waterfall=WHOLE | {"parts": [PART | {"change_ns": 2}]}),
        compared(comm=WHOLE | {"change_ns": 3, "rows": [PART], "rest": PART, "side_by_side": PART}),
    ],
    "intervals": [
        compared(judgement={"interval": [0.2, 0.1], "effect": 0.15}),
        compared(judgement={"p_value": 1.1}),
        said('{"point": {"efficiency_interval": [0.1, 0.2], "efficiency": 0.9}}', args="scaling -f json t.csv"),
    ],
    "agrees": [
        said("a", others=[said("b")]),
        said(named(1) + "a", args="ncu --dry-run t.json", others=[said(named(2) + "b", args="ncu --dry-run t.json")]),
        said(code=3, err="profkit: x", others=[said(args="triage -f json t.json")]),
        said("a", args="triage --lenient t.json", others=[said("b")]),
    ],
    "markdown": [
        said(text, args="triage -f markdown t.json")
        for text in (
            "a <script>b",
            "<!-- a",
            "[a](http://x)",
            "by @octocat",
            "![a](http://x)",
            "| a | b |\n|---|---|\n| a | b | c |\n",
        )
    ],
    "page": [
        said(text, args="triage -f html t.json")
        for text in (
            "<style></style><script></script><script>x</script>",
            "<style></style><script></script><img src=x>",
            "<style></style><script></script><p onclick=x>",
            "<style></style><script></script><a href='javascript:x'>",
            "<style></style><script></script><p style='color:red'>",
        )
    ],
    "hints": [said(err="profkit: x\n  hint: profkit kernels t;touch PWN\n", code=3)],
    "commands": [
        document(next={"command": command})
        for command in ("python a; b", "a 'b", "a $(b)", 'a "`b`"', "a > b", "a\nb", "a #", "a && b", "ls *")
    ],
}
"""For each oracle, what it must not let pass."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "in"


@pytest.mark.parametrize("name", ORACLES)
def test_each_oracle_fails_on_what_is_bad(name: str, folder: Path) -> None:
    odd = {"t;touch PWN": File(body=Lines([]))}
    case = CASE.but(files=odd, secrets=[Secret(marker="s3cret!", form="plain")])
    for outcome in BAD[name]:
        assert name in {fault.oracle for fault in faults_of(outcome, case, folder)}, outcome


def test_what_is_left_behind_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "profkit-abcdefgh").mkdir()
    (fault,) = faults_of(said(), CASE, folder)
    assert fault.signature == "files: triage left profkit#"


def test_no_oracle_fails_on_what_is_good(folder: Path) -> None:
    good = [
        said("Step 41.2 ms (5 steps, varies by 120.0 %), idle 46.1 %, 210.0 % longer\n", peak_bytes=10**6, wall_s=1.0),
        said("\x1b[1;32mfine\x1b[0m\n", args="triage --color t.json"),
        said(err="profkit: no trace\n  hint: give one\n", code=3),
        said(
            err="profkit: wrote out.md\n",
            args="triage t.json -o out.md",
            new_files=["out.md"],
            acts=["writes out.md.part"],
        ),
        said(err="Traceback (most recent call last):\nprofkit: x\n", code=3, args="triage -v t.json"),
        said('{"a": 1}', args="info -f json t.json"),
        said("same", others=[said("same"), said("other", args="triage -v t.json")]),
        said(named(1), args="ncu --dry-run t.json", others=[said(named(2), args="ncu --dry-run t.json")]),
        said("`<script>` \\<img \n| a \\| b | `c` |\n|---|---|\n| a | b |\n", args="triage -f markdown t.json"),
    ]
    for outcome in good:
        assert not faults_of(outcome, CASE, folder)
    assert {fault.oracle for fault in faults_of(document(next={"command": "python 'a;b' \\; c#d"}), CASE, folder)} == {
        "obeys_schema"  # the rest of the document is missing here, and nothing else is wrong
    }


@pytest.mark.parametrize(
    ("command", "live"),
    [
        ("python train.py", ""),
        ("a 'b;c' \"d|e\" f\\&g", ""),
        ("a;b", ";"),
        ('"$x"', "$"),
        ("'$x'", ""),
        ("'open", "'"),
        ("a#b", ""),
        ("#b", "#"),
    ],
)
def test_what_a_shell_would_do(command: str, live: str) -> None:
    assert live_in(command) == live


def test_an_input_is_always_the_same() -> None:
    """In another process too, which loads no more than what inputs are drawn from."""
    code = "from tests.fuzz.kinds import digest; print(digest('same', (0, 3, 11, 26)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == digest("same", (0, 3, 11, 26))


def test_a_secret_is_no_secret_without_its_spaces() -> None:
    """A find that is made smaller must stay one: "--api-keyX" hides nothing."""
    secret = Secret(marker="X", form="command", shape=("profkit_command", "python t.py --api-key X"))
    for layout in ("kineto", "compact", "indented"):
        for command, is_one in (("python t.py --api-key X", True), ("pythont.py--api-keyX", False)):
            top = {"profkit_command": command, "traceEvents": []}
            assert secret.is_in(CASE.but(files={"t.json": File(body=Json(top, layout=layout))})) is is_one


MUTATORS = [
    *(pytest.param(bases.drawn_trace, mutate, id=f"events: {what}") for _, what, mutate in events.MUTATORS),
    *(pytest.param(nsys.drawn_statements, mutate, id=f"exports: {what}") for _, what, mutate in sql.MUTATORS),
]


@pytest.mark.parametrize(("drawn", "mutate"), MUTATORS)
def test_a_mutator_does_not_stumble_over_what_is_sound(drawn: Any, mutate: Any) -> None:
    for seed in range(12):
        rng = random.Random(seed)  # noqa: S311 - inputs, no secrets
        mutate(rng, drawn(rng))


def test_a_find_is_made_small() -> None:
    top = bases.trace_named("everything")
    top["traceEvents"] = top["traceEvents"][80:110]  # each try writes what is left: a tenth of it shows as much
    top["traceEvents"][20]["name"] = "x" * 50 + "bad" + "y" * 500
    case = CASE.but(files={"t.json": File(body=Json(top), packing="gz"), "other.json": File(body=Lines(["a"]))})
    shrinker = Shrinker(case, lambda tried: any(b"bad" in _unpacked(file) for file in tried.files.values()), limit_s=30)
    small = shrinker.run()
    assert shrinker.n_tries < 2_000  # it ends by itself
    assert [*small.files] == ["t.json"]
    assert json.loads(small.files["t.json"].data()) == {"traceEvents": [{"name": "bad"}]}


def _unpacked(file: File) -> bytes:
    return file.body.encoded()


def test_a_find_in_a_database_is_made_small() -> None:
    statements = nsys.drawn_statements(random.Random(1))  # noqa: S311 - inputs, no secrets
    case = CASE.but(files={"t.sqlite": File(body=Sql([*statements, ("CREATE TABLE bad (x)", ())]))})
    small = Shrinker(case, lambda tried: b"bad" in tried.files["t.sqlite"].data(), limit_s=30).run()
    assert small.files["t.sqlite"].body == Sql([("CREATE TABLE bad (x)", ())])


def supervised(tmp_path: Path, code: str, **more: Any) -> Supervisor:
    """A supervisor whose workers run some code instead."""
    plan = Plan(
        seed="s", kinds=["tables"], minutes=1, n_inputs=30, out=tmp_path, command=(sys.executable, "-c", code), **more
    )
    supervisor = Supervisor(plan)
    supervisor.run()
    return supervisor


DYING = """
import os, sys, time
for line in sys.stdin:
    kind, start, count = line.split()
    for index in range(int(start), int(start) + int(count)):
        print("b", kind, index, flush=True)
        if index == 5: {act}
        print("e", kind, index, 0, 0.001, 0.001, 1, flush=True)
    print("d", flush=True)
"""


@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("time.sleep(60)", "killed: hanging"),
    ],
)
def test_a_process_that_dies_or_hangs_is_a_find_and_the_rest_is_tried(tmp_path: Path, act: str, how: str) -> None:
    supervisor = supervised(tmp_path, DYING.format(act=act), limit_s=0.5)
    assert [*supervisor.finds] == [f"process: {how} (tables)"]
    (find,) = supervisor.finds.values()
    assert find["only"] == "s:tables:5"
    assert {path.name for path in (Path(find["place"]) / "files").iterdir()} == {*case_of("s", "tables", 5).files}
    assert supervisor.tallies["tables"].n == 30
    assert "1 finds" in summary(supervisor, 1.0)


FEW = dict.fromkeys(KINDS if IN_FULL else ("kineto", "nsys", "tables"), 1)
"""Of each kind as many inputs as a process tries at a time; `make fuzz`, which CI runs as well, tries all kinds."""


def test_a_process_that_somebody_stops_is_no_find(tmp_path: Path) -> None:
    once = tmp_path / "once"
    act = f"__import__('pathlib').Path({str(once)!r}).exists() or (open({str(once)!r}, 'w'), os.kill(os.getpid(), 15))"
    supervisor = supervised(tmp_path, DYING.format(act=act))
    assert not supervisor.finds
    assert supervisor.tallies["tables"].n == 30


@pytest.mark.sampled
def test_a_few_inputs_of_every_kind_find_nothing(tmp_path: Path) -> None:
    timer = signal.getitimer(signal.ITIMER_REAL)
    n_inputs = CHUNK * sum(FEW.values())
    plan = Plan(seed="smoke", kinds=[*FEW], minutes=2, n_inputs=n_inputs, weights=FEW, out=tmp_path, minimise_s=0)
    supervisor = Supervisor(plan)
    supervisor.run()
    assert not [*supervisor.finds], summary(supervisor, 1.0)
    for kind, tally in supervisor.tallies.items():
        assert tally.n == CHUNK * FEW[kind]
        assert {0, 3} <= {*tally.codes} <= {0, 1, 2, 3, 4}, kind
    left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
    assert (left_s <= timer[0], again_s) == (True, timer[1])  # that of this test runs on


def test_what_a_mutator_puts_in_is_its_own() -> None:
    """One that writes into it changes no other input, and nothing can come to hold itself."""
    for seed in range(200):
        value = values.instead_of(None, random.Random(seed))  # noqa: S311 - inputs, no secrets
        assert not isinstance(value, (dict, list)) or all(value is not other for other in values.OTHERS)

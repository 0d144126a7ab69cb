"""What must hold of every command, whatever its input: a table of functions from an outcome to faults.

To add one: a function (Outcome, Case, folder) that yields faults, with `@oracle`. A fault's `key` tells it from others of
its oracle; it holds nothing of the input, so that two inputs with one cause are one find.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from profkit.ranks.reduce.records import PHASES
from profkit.render.schema import SCHEMAS, schema
from tests.fuzz.documents import Case
from tests.fuzz.pages import faults_of_page
from tests.fuzz.target import LIMIT_CPU_S, LIMIT_S, MOST_BYTES, Outcome, TooSlow

MOST_ERROR = 500


@dataclass(frozen=True)
class Fault:
    """What did not hold: of which oracle, which of its kind, and what was seen."""

    oracle: str
    key: str
    said: str

    @property
    def signature(self) -> str:
        return f"{self.oracle}: {self.key}"


Faults = Iterator[tuple[str, str]]
Oracle = Callable[[Outcome, Case, Path], Faults]
ORACLES: dict[str, Oracle] = {}
"""Every oracle by its name."""


def oracle(function: Oracle) -> Oracle:
    """Enter a function into the table, under its name."""
    ORACLES[function.__name__] = function
    return function


def of_triage(function: Callable[[Any], Faults]) -> Oracle:
    """Enter a function of a triage's document into the table."""

    def checked(outcome: Outcome, case: Case, folder: Path) -> Faults:
        document = document_of(outcome)
        if document is not None and outcome.command == "triage":
            yield from function(document)

    ORACLES[function.__name__] = checked
    return checked


def faults_of(outcome: Outcome, case: Case, folder: Path) -> list[Fault]:
    """What of the table does not hold, each fault once."""
    found = [
        Fault(oracle=name, key=key, said=said[:2000])
        for name, check in ORACLES.items()
        for key, said in check(outcome, case, folder)
    ]
    return list({fault.signature: fault for fault in found}.values())


# ------------------------------------------------------------------------------------------------------- how it ended


@oracle
def crash(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """No internal error: no exit code 70, no exception out of `main`."""
    error = outcome.error
    if error is None or isinstance(error, (TooSlow, MemoryError)):
        return
    yield f"{type(error).__name__} at {' < '.join(outcome.where[::-1])}", f"{type(error).__name__}: {str(error)[:300]}"


@oracle
def exit_code(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """0 to 4; another is none that the documentation knows."""
    if outcome.error is None and outcome.code not in range(5):
        yield f"{outcome.command} {outcome.code}", f"exit code {outcome.code}"


@oracle
def slow(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Within the limit of time."""
    if isinstance(outcome.error, TooSlow) or outcome.wall_s > LIMIT_S:
        said = f"more than {LIMIT_CPU_S} s of a processor or {LIMIT_S} s ({outcome.wall_s:.1f} s)"
        yield f"at {' < '.join(outcome.where[::-1])}", said


@oracle
def memory(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Within the limit of memory."""
    if isinstance(outcome.error, MemoryError) or outcome.peak_bytes > MOST_BYTES:
        where = f"MemoryError at {' < '.join(outcome.where[::-1])}" if outcome.error else outcome.command
        yield where, f"{outcome.peak_bytes >> 20} MiB more than before"


@oracle
def traceback(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """No traceback is printed, unless asked for with -v. (That of a `crash` is not told twice.)"""
    is_told = "Traceback (most recent call last)" in outcome.err + outcome.out
    if is_told and outcome.error is None and not is_verbose(outcome):
        yield f"{outcome.command} {outcome.code}", outcome.err[-1500:]


def is_verbose(outcome: Outcome) -> bool:
    """Whether tracebacks of refusals were asked for."""
    return "-v" in outcome.args or "--verbose" in outcome.args


@oracle
def warning(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """No library's warning reaches the user."""
    for text in outcome.warned:
        yield re.sub(r"[\d.]+(?=[^(]*\()", "N", text), text


@oracle
def complaint(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """An error is one line and at most one hint, each of bounded length; a usage error of click's has its own form."""
    if is_verbose(outcome):
        return
    lines = outcome.err.rstrip("\n").split("\n") if outcome.err.strip() else []
    is_usage = bool(lines) and lines[0].startswith("Usage: ")
    if outcome.code in (2, 3, 4) and outcome.error is None and not is_usage:
        if not lines:
            yield f"{outcome.command} silent", "an error without a word"
        strange = [line for line in lines if not line.startswith(("profkit: ", "  hint: "))]
        if strange:
            yield f"{outcome.command} lines", f"{strange[0][:200]!r} in {outcome.err[:1000]!r}"
    for line in lines:
        if len(line) > MOST_ERROR:
            yield f"{outcome.command} length", f"a line of {len(line):,} characters on stderr: {line[:200]!r}"


# ------------------------------------------------------------------------------------------------------ what it did


@oracle
def files(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Nothing is written but what was named with -o; temporary files are gone at the end; nothing is started."""
    allowed = {outcome.args[place + 1] for place, word in enumerate(outcome.args[:-1]) if word in ("-o", "--cache")}
    temporary = f"{os.environ.get('TMPDIR', gettempdir())}/"
    own = (temporary, f"{os.environ.get('HOME', temporary)}/")  # the user's own folder keeps a key
    for act in outcome.acts:
        what, _, path = act.partition(" ")  # one inside another is changed by a folder's handle
        is_inside_another = what.startswith("os.") and "/" not in path and path not in case.files
        if not (_is_of(path.removeprefix(f"{folder}/"), allowed) or f"{path}/".startswith(own) or is_inside_another):
            yield f"{outcome.command} {what} {_general(path)}", act
    for path in Path(temporary).iterdir():
        yield f"{outcome.command} left {_general(path.name)}", f"{path} is still there"
    for name in outcome.new_files:
        if not _is_of(name, allowed):
            yield f"{outcome.command} new {_general(name)}", f"{name} is new"


def _is_of(path: str, allowed: set[str]) -> bool:
    """Whether a path is one of these, in one, or its temporary neighbour: `x.part`, `.x.abc.part`."""
    whole = path.removesuffix(".part")
    return bool({path, whole, whole.removeprefix(".").rpartition(".")[0], path.partition("/")[0]} & allowed)


def _general(path: str) -> str:
    return re.sub(r"[-_][\w]{8}(?=/|$)|\d+|[0-9a-f]{8,}", "#", path)[:120]


# ------------------------------------------------------------------------------------------------------ what it said

_SGR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


@oracle
def control(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """No control characters but line breaks, and colours where they were asked for."""
    written = () if outcome.command == "export" else _written(outcome, folder)  # data for programs, names as they are
    for stream, text in (("stdout", outcome.out), ("stderr", outcome.err), *written):
        shown = _SGR.sub("", text) if "--color" in outcome.args else text
        if match := _CONTROL.search(shown):
            around = repr(shown[max(match.start() - 60, 0) : match.end() + 60])
            yield f"{outcome.command} {outcome.fmt} {stream} U+{ord(match[0]):04X}", around


def _written(outcome: Outcome, folder: Path) -> Iterator[tuple[str, str]]:
    if "-o" in outcome.args:
        path = folder / outcome.args[outcome.args.index("-o") + 1]
        if path.is_file():
            yield "file", path.read_text(encoding="utf-8", errors="surrogateescape")


@oracle
def secret(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """A planted secret is never printed."""
    for planted in case.secrets:
        for stream, text in (("stdout", outcome.out), ("stderr", outcome.err)):
            bare = text if planted.marker in text else re.sub(r"\s+", "", text)  # lines are broken anywhere
            place = bare.find(planted.marker)
            if place >= 0:
                yield f"{planted.form} ({outcome.command} {stream})", bare[max(place - 200, 0) : place + 100]


_PERCENT = re.compile(r"(?<![\w.,])(-?\d[\d,]*(?:\.\d+)?) ?%")
_PART = re.compile(
    r"(?:compute|comm|copies|idle|rest|busy|data|sync|launch|host|dependency|unknown|occupancy|share)\W{0,4}$"
)


@oracle
def percent(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """No share above 100 % in the text of a triage: what is "of" something, or named as a part; a change may be more."""
    if outcome.command != "triage" or outcome.fmt == "json" or any("%" in what for what in case.done):
        return
    for match in _PERCENT.finditer(outcome.out):
        value = float(match[1].replace(",", ""))
        before, after = outcome.out[: match.start()][-60:], outcome.out[match.end() :][:60]
        if (value > 100.05 or value < 0) and (after.startswith((" of ", "\n of ")) or _PART.search(before)):
            yield _near(after), f"{before}{match[0]}{after}"


def _near(text: str) -> str:
    """What a number is a share of: the words after it."""
    return " ".join(re.findall(r"[a-z]{2,}", re.split(r"[.,;:()\n|]", text, maxsplit=1)[0])[:5]) or "a part"


# ------------------------------------------------------------------------------------------------------ JSON


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Let an optional module look as if it were not installed; one that is loaded already stays."""
    is_hidden = module not in sys.modules
    if is_hidden:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[module]


@cache
def _validator(name: str) -> Any:
    with _without("rfc3987_syntax"):  # a grammar that takes 3 s to load, for a format that no schema of ours has
        import jsonschema
    return jsonschema.Draft202012Validator(schema(name))


def document_of(outcome: Outcome) -> Any:
    """The document that was printed, None where none was asked for or given."""
    if outcome.fmt != "json" or outcome.code not in (0, 1) or outcome.error is not None:
        return None
    try:
        return json.loads(outcome.out, parse_constant=_refuse)
    except ValueError:
        return None


@oracle
def parses(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """What is asked for as JSON is JSON, without NaN and Infinity, with unique keys and numbers that all readers have."""
    if outcome.fmt != "json" or outcome.code not in (0, 1) or outcome.error is not None:
        return
    whole = int if outcome.command == "info" else _whole  # metadata is shown as it is
    try:
        json.loads(outcome.out, parse_constant=_refuse, parse_int=whole)
    except (ValueError, RecursionError) as error:
        said = re.sub(r"-?\d+", "N", str(error))
        yield f"{outcome.command} {said[:80]}", f"{error}: {outcome.out[:300]}"


def _whole(text: str) -> int:
    if len(text) > 30:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


@oracle
def obeys_schema(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """A document obeys the schema that `profkit schema` prints."""
    document = document_of(outcome)
    if document is None or outcome.command not in SCHEMAS:
        return
    is_of_kernels = isinstance(document, dict) and document.get("schema") == "profkit.compare-kernels/1"
    for error in _validator("compare_kernels" if is_of_kernels else outcome.command).iter_errors(document):
        path = ".".join("0" if isinstance(step, int) else step for step in error.absolute_path)
        yield f"{outcome.command} {path} {error.validator}", f"{path}: {error.message[:300]}"


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path, indices left out."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, path)


@of_triage
def budget(document: Any) -> Faults:
    """The parts of each device's budget add up to the window, exactly, and none is negative."""
    for rank in document["ranks"]:
        for device in rank["devices"]:
            parts = device["budget_ns"]
            if sum(parts.values()) != rank["window"]["duration_ns"]:
                yield "sum", f"{parts} is not {rank['window']}"
            if min(parts.values()) < 0:
                yield "negative", f"{parts}"


_SHARES = re.compile(r"\.(?:fraction|confidence|share|\w+_fraction|\w+_share|occupancy(?:\.\w+)?)$")


@of_triage
def fraction(document: Any) -> Faults:
    """Every share in a triage is within 0 and 1: by the name of its field, the unit of evidence or of a column."""
    for path, value in _walk(document):
        if not isinstance(value, bool) and _SHARES.search(path) and not _is_share(value):
            yield path, f"{path} is {value}"
        elif isinstance(value, dict) and value.get("unit") == "fraction" and not _is_share(value.get("value")):
            metric = str(value.get("metric"))
            if not metric.endswith("_difference"):  # of two shares: may be less than nothing
                yield metric, f"{path}: {metric} is {value.get('value')}: {value.get('statement')}"
        elif isinstance(value, dict) and "units" in value and "rows" in value:
            for row in value["rows"]:
                for head, unit, item in zip(value["headers"], value["units"], row, strict=False):
                    if unit == "fraction" and not _is_share(item):
                        yield f"table {value['title']}: {head}", f"{item} in {row}"


def _is_share(value: Any) -> bool:
    return not isinstance(value, (int, float)) or -1e-9 <= value <= 1 + 1e-9


@of_triage
def ceiling(document: Any) -> Faults:
    """What can be gained: a ceiling of at least 1, at least no time, at most the step."""
    verdict = document["verdict"]
    if verdict["speedup_ceiling"] is not None and verdict["speedup_ceiling"] < 1:
        yield "below 1", f"{verdict['speedup_ceiling']}"
    if verdict["recoverable_ns"] < 0:
        yield "negative", f"{verdict['recoverable_ns']}"
    if verdict["step_ns"] is not None and verdict["recoverable_ns"] > verdict["step_ns"]:
        yield "more than a step", f"{verdict['recoverable_ns']} of {verdict['step_ns']}"
    for finding in document["findings"]:
        if finding["recoverable_ns"] is not None and finding["recoverable_ns"] < 0:
            yield f"{finding['id']} negative", f"{finding['recoverable_ns']}"


_AMOUNTS = re.compile(r"\.(?:mean_ns|p50_ns|p95_ns|durations?_ns|busy_ns(?:\.\w+)?|comm_overlapped_ns|n_\w+|cv)$")


@of_triage
def negative(document: Any) -> Faults:
    """No duration, count or size in a triage is negative, where its name says what it is."""
    for path, value in _walk(document["ranks"]):
        if _AMOUNTS.search(path) and isinstance(value, (int, float)) and value < 0:
            yield f"{path}", f"{path} is {value}"


@oracle
def sums(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """What is said to add up does, to the nanosecond: waterfalls and accounts of a comparison, the table of ranks."""
    document = document_of(outcome)
    if not isinstance(document, dict):
        return
    for row in (document.get("fleet") or {}).get("rows", []) if outcome.command == "triage" else []:
        parts = [row[f"{name}_ns"] or 0 for name in (*PHASES, "comm_wait", "comm_transfer")]
        if row["step_ns"] is not None and sum(parts) != row["step_ns"]:
            yield "fleet row", f"{sum(parts)} is not {row}"
    if outcome.command != "compare":
        return
    if waterfall := document.get("waterfall"):
        yield from _adds_up("waterfall", waterfall, waterfall["parts"])
    for name in ("compute", "comm"):
        if account := document.get(name):
            yield from _adds_up(name, account, [*account["rows"], account["rest"], account["side_by_side"]])


def _adds_up(name: str, whole: dict[str, Any], parts: list[dict[str, Any]]) -> Faults:
    for key in ("baseline_ns", "candidate_ns", "change_ns"):
        if sum(part[key] for part in parts) != whole[key]:
            yield f"{name} {key}", f"{sum(part[key] for part in parts)} is not {whole[key]}"
    if whole["candidate_ns"] - whole["baseline_ns"] != whole["change_ns"]:
        yield f"{name} change", f"{whole['baseline_ns']}, {whole['candidate_ns']}, {whole['change_ns']}"


@oracle
def intervals(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Intervals have their ends in order, those of an efficiency, a factor and a ratio hold it; p-values are probabilities."""
    document = document_of(outcome)
    if outcome.command not in ("compare", "scaling", "ladder") or document is None:
        return
    of_interval = "value" if outcome.command == "ladder" else ""
    for path, value in _walk(document):
        if not isinstance(value, dict):
            continue
        inside_of = {"interval": of_interval, "ratio_interval": "ratio", "efficiency_interval": "efficiency"}
        for key, inside in inside_of.items():
            ends = value.get(key)
            if ends and None not in ends:
                middle = value.get(inside)
                slack = 1e-9 * max(map(abs, ends))
                if not ends[0] <= ends[1] or (middle is not None and not ends[0] - slack <= middle <= ends[1] + slack):
                    yield f"{outcome.command} {path}.{key}", f"{ends} of {middle}"
        if value.get("p_value") is not None and not 0 <= value["p_value"] <= 1:
            yield f"{outcome.command} {path}.p_value", f"{value['p_value']}"


# ------------------------------------------------------------------------------------------------------ what agrees

_CAPTURE_ID = re.compile(r'("capture_id":")[0-9a-f]{32}(?=")')
_SHOWING = re.compile(r"-v|--color|terminal|json|markdown|html|-f")


_TOLD_BROKEN = re.compile(r"^  failed |not read|TraceFormatError|TruncatedTraceError", re.MULTILINE)


@oracle
def agrees(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """One input gives one answer: the same text from the same command, the same exit code however it is shown.

    `--lenient` changes nothing of what can be read without; of a folder a broken file is left out without, and told.
    """
    for other in outcome.others:
        if outcome.error is not None or other.error is not None:
            continue
        if other.args == outcome.args and _told(other) != _told(outcome):
            yield f"{outcome.command} again", _difference(other.out + other.err, outcome.out + outcome.err)
        without = [[word for word in one.args if not _SHOWING.fullmatch(word)] for one in (outcome, other)]
        if without[0] == without[1] and other.code != outcome.code:
            yield f"{outcome.command} exit codes", f"{other.args}: {other.code}, {outcome.args}: {outcome.code}"
        strict = [word for word in outcome.args if word != "--lenient"]
        if (
            strict == other.args != outcome.args
            and other.code in (0, 1)
            and not _TOLD_BROKEN.search(other.out)
            and (other.out, other.code) != (outcome.out, outcome.code)
        ):
            yield f"{outcome.command} --lenient", _difference(other.out, outcome.out)


def _told(outcome: Outcome) -> tuple[str, str, int]:
    """What a command said, but for the name that each capture has to itself: drawn anew for every command line."""
    return _CAPTURE_ID.sub(r"\1", outcome.out), outcome.err, outcome.code


def _difference(one: str, other: str) -> str:
    lines = one.split("\n"), other.split("\n")
    pairs = [f"{a!r} against {b!r}" for a, b in zip(*lines, strict=False) if a != b]
    return pairs[0] if pairs else f"{len(lines[0])} lines against {len(lines[1])}"


@oracle
def both_ways(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """The compiled scanner of traces reads what Python alone reads, to the last bit, or the same error."""
    if outcome.unlike:
        yield "another trace", outcome.unlike


# ------------------------------------------------------------------------------------------------------ markdown

_LIVE_HTML = re.compile(r"<(?:script|img|!--|a |svg|style|iframe)", re.IGNORECASE)
_LIVE_LINK = re.compile(r"!?\[[^\]]*\]\((?:javascript|http|file)|(?<![\w`/])@octocat|http://e\.vil", re.IGNORECASE)
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1`*[ ]*$", re.DOTALL | re.MULTILINE)


@oracle
def markdown(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Nothing of the input is live in markdown: no HTML, links, mentions; every row of a table has its cells."""
    if outcome.fmt != "markdown" or outcome.code not in (0, 1) or outcome.command == "scaling":
        return
    prose = _CODE.sub("", _FENCE.sub("", outcome.out))
    for name, pattern in (("HTML", _LIVE_HTML), ("link", _LIVE_LINK)):
        for match in pattern.finditer(prose):
            if prose[match.start() - 1 : match.start()] != "\\":
                yield f"{outcome.command} {name} {match[0][:12]}", prose[max(match.start() - 100, 0) : match.end() + 60]
    n_cells = 0
    for line in _FENCE.sub("", outcome.out).split("\n"):
        if not line.startswith("|"):
            n_cells = 0
            continue
        found = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        if n_cells and found != n_cells:
            yield f"{outcome.command} cells", line[:300]
        n_cells = n_cells or found


# ---------------------------------------------------------------------------------------------------------- pages


@oracle
def page(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Nothing of the input is live in a page, and its rows are whole."""
    if outcome.fmt == "html" and outcome.code in (0, 1):
        for key, said in faults_of_page(outcome.out):
            yield f"{outcome.command} {key}", said


# ------------------------------------------------------------------------------------------------------ commands


def live_in(command: str) -> str:
    """What a shell would do more with a command than start it: characters that stand there unquoted."""
    found, quote, escaped, at_start = "", "", False, True
    for char in command:
        if escaped:
            escaped = False
        elif quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            escaped = True
        elif quote == '"':
            quote = "" if char == '"' else quote
            found += char if char in "$`" else ""
        elif char in "'\"":
            quote = char
        elif char in ";&|<>$`()\n*?" or (char in "#~" and at_start):
            found += char
        at_start = char in " \t"
    return found + (quote or "") + ("\\" if escaped else "")


@oracle
def commands(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """Commands that are printed as the next ones to run are one command each, and nothing of the input in them runs."""
    document = document_of(outcome)
    if document is None or not isinstance(document, dict):
        return
    for path, value in _walk(document):
        if not path.endswith(".command") or not isinstance(value, str):
            continue
        try:
            words = shlex.split(value)
        except ValueError as error:
            yield f"{path} {error}", value
            continue
        live = live_in(value)
        if live:
            yield f"{path} {'line break' if chr(10) in live else 'shell'}", f"{sorted(set(live))} in {value}"
        if not words and value:
            yield f"{path} empty", value


@oracle
def hints(outcome: Outcome, case: Case, folder: Path) -> Faults:
    """A file's name in a command that a hint gives is quoted as a shell needs it."""
    for line in outcome.err.split("\n"):
        place = line.find("hint: ")
        for name in {word for path in case.files for word in (path, *path.split("/"))} if place >= 0 else ():
            if not live_in(name) or shlex.quote(name) in line:
                continue
            for match in re.finditer(r"profkit [a-z]+ [^;,]*?" + re.escape(name), line[place:]):
                if live_in(match[0]):
                    yield f"{outcome.command}", line[:400]

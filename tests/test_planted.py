"""Secrets planted in traces, tables, URLs and commands come out of no command, no cache and no file that it writes."""

import base64
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from profkit.capture.command import redacted_text as redacted_reason
from profkit.cli import complain, group
from profkit.errors import ProfkitError
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.ncu.reader import read_profiles
from profkit.render import formats_of
from profkit.testing import kernel, launch, span, to_json
from tests.calling import profkit
from tests.test_secrets import HEX, SHAPES, TEXTS, VALUES, drawn, three

ORDINARY = "an ordinary annotation"
SECRETS = [secret for name in (*TEXTS, *VALUES) for secret in three(name)]
SECRETS += [secret for name in SHAPES for secret in three(name, (HEX, 36))]


def leaks(text: str | bytes) -> set[str]:
    """Give the planted secrets of which the half or more is in a text."""
    text = (text if isinstance(text, str) else text.decode("latin-1")).lower()
    return {secret for secret in SECRETS if secret[: min(max(len(secret) // 2, 6), 16)].lower() in text}


def planted(rank: int = 0) -> bytes:
    """Give a trace with every secret as annotation, operator, kernel or thread, and in its metadata."""
    texts = [form(secret) for name, form in TEXTS.items() for secret in three(name)]
    texts += [form(secret) for name, form in SHAPES.items() for secret in three(name, (HEX, 36))]
    rows = []
    step_ns = 100_000
    for number, text in enumerate([*texts, ORDINARY]):
        at = 10**9 + 1000 * number
        rows.append(span(text, at, at + 900, cat=("user_annotation", "cpu_op")[number % 2]))
        rows.append(launch(at, at + 200, correlation=number))
        rows.append(kernel(text if number % 3 == 0 else "gemm", at + 300, at + 1200, correlation=number))
    n_steps = len(texts) * 1000 // step_ns + 2
    rows += [
        span(f"ProfilerStep#{step}", 10**9 + step * step_ns, 10**9 + (step + 1) * step_ns) for step in range(n_steps)
    ]
    metadata: dict[str, Any] = {"notes": texts, "texts": {f"note{n}": text for n, text in enumerate(texts)}}
    for name, form in VALUES.items():
        metadata[name] = [dict([form(secret)]) for secret in three(name)]
    metadata["profkit_command"] = "python train.py --api-key " + three("flag")[0]
    document = json.loads(to_json(rows, metadata=metadata, rank=rank))
    for number, text in enumerate(texts):
        thread = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1000 + number, "args": {"name": text}}
        document["traceEvents"].append(thread)
    document["traceEvents"].append(
        {"ph": "i", "cat": texts[-1], "name": texts[0], "pid": 1, "tid": texts[1], "ts": 1e6}
    )
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with two ranks."""
    folder = tmp_path_factory.mktemp("planted")
    for rank in range(2):
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(planted(rank)))
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Give all that a command prints, its one line of error with it."""
    result = CliRunner().invoke(group, list(map(str, arguments)))
    if isinstance(result.exception, ProfkitError):
        complain(result.exception)
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    captured = capsys.readouterr()
    return result.output + captured.out + captured.err


def test_the_planted_trace_holds_every_secret() -> None:
    assert set(SECRETS) == leaks(planted())


@pytest.mark.parametrize(
    "words",
    [
        ["triage", "{}/rank0.json.gz", "-v"],
        ["triage", "{}/rank0.json.gz", "-f", "json"],
        ["triage", "{}/rank0.json.gz", "-f", "markdown"],
        ["triage", "{}", "-v"],
        ["triage", "{}", "-f", "json"],
        ["info", "{}/rank0.json.gz"],
        ["info", "{}/rank0.json.gz", "-f", "json"],
        ["compare", "{}/rank0.json.gz", "{}/rank1.json.gz", "-v"],
        ["compare", "{}/rank0.json.gz", "{}/rank1.json.gz", "-f", "json"],
        ["compare", "{}/rank0.json.gz", "{}/rank1.json.gz", "-f", "markdown"],
    ],
    ids=" ".join,
)
def test_no_command_shows_one(words: Sequence[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, *(word.format(folder) for word in words))
    assert leaks(shown) == set()
    assert len(shown) > 200


def test_no_cache_holds_one(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leaks(said(capsys, "triage", folder, "--cache", tmp_path / "cache")) == set()
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) >= 2
    for path in files:
        assert leaks(path.read_bytes()) == set()
        assert leaks(path.name) == set()


def test_nothing_of_a_trace_in_memory_holds_one(folder: Path) -> None:
    trace = read_trace(str(folder / "rank0.json.gz"))
    assert leaks(repr((trace.meta, trace.strings, trace.threads, trace.warnings))) == set()
    assert ORDINARY in trace.strings


@pytest.mark.parametrize("secret", three("annotation"))
def test_errors_that_quote_a_file_quote_none(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = f'{{"token={secret}": 1, "token={secret}": 2, "traceEvents": []}}'
    bad = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": f"token={secret}", "dur": 1, "pid": 1, "tid": 1}]})
    for number, text in enumerate((twice, bad)):
        (tmp_path / f"rank{number}.json").write_text(text)
        assert leaks(said(capsys, "triage", tmp_path / f"rank{number}.json")) == set()
        assert leaks(said(capsys, "triage", tmp_path / f"rank{number}.json", "--lenient")) == set()
    (tmp_path / "rank2.json").write_bytes(to_json([span("a", 10**9, 10**9 + 10)]))
    for fmt in formats_of("triage"):
        assert leaks(said(capsys, "triage", tmp_path, "-f", fmt)) == set()
    assert leaks(redacted_reason(f"RuntimeError: cannot log in, token={secret}")) == set()


@pytest.mark.parametrize(
    "words", [["token={}"], ["triage", "--steps", "token={}", "x"], ["triage", "-v", "--steps", "token={}", "x"]]
)
def test_errors_that_quote_arguments_quote_none(words: list[str]) -> None:
    secret = three("flag")[2]
    done = profkit(*(word.format(secret) for word in words))
    assert done.returncode == 2
    assert "token=[redacted]" in done.stderr
    assert leaks(done.stdout + done.stderr) == set()


@pytest.mark.parametrize("secret", three("flag"))
def test_commands_that_a_user_types_are_shown_without(
    secret: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["python", "train.py", "--api-key", secret]
    shown = said(capsys, "triage", folder / "rank0.json.gz", "-v", "--command", " ".join(typed))
    shown += said(capsys, "triage", folder / "rank0.json.gz", "-f", "json", "--command", " ".join(typed))
    shown += said(capsys, "nsys", "--dry-run", "-o", tmp_path / "n", "--", *typed)
    shown += said(capsys, "ncu", "--dry-run", "-o", tmp_path / "n", "--", *typed)
    assert "--api-key" in shown
    assert leaks(shown) == set()


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_a_dry_run_shows_no_secret_of_the_environment(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"lib:https://me:{three('password in a connection URL')[2]}@host/simple")
    shown = said(capsys, tool, "--dry-run", "-o", tmp_path / f"token={three('flag')[2]}", "--", "job")
    assert "mkdir -p" in shown
    assert "PYTHONPATH=" in shown
    assert leaks(shown) == set()


def test_a_benchmark_runs_what_was_typed_and_shows_it_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = three("flag")[2]
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[3]); print('token=' + sys.argv[3])"
    arm = [sys.executable, "-c", code, tmp_path / "seen", "--api-key", secret]
    table = tmp_path / "t.csv"
    shown = said(capsys, "bench", "-n", "1", "--warmup", "0", "-o", table, "--", *arm, "--vs", *arm)
    assert (tmp_path / "seen").read_text() == secret * 2
    assert leaks(shown + table.read_text()) == set()
    assert "--api-key" in shown
    arm[2] = code + "; sys.exit(3)"
    assert leaks(said(capsys, "bench", "-n", "1", "-o", tmp_path / "u.csv", "--", *arm, "--vs", *arm)) == set()


@pytest.mark.parametrize("secret", three("annotation"))
def test_tables_of_results_show_none(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"token={secret} {arm},{secret},{speed}" for arm in "ab" for speed in (100, 101, 102)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["arm,api_key,tokens_per_s", *rows]))
    for fmt in formats_of("compare"):
        shown = said(capsys, "compare", path, "-f", fmt)
        assert leaks(shown) == set()
        assert "tokens/s" in shown
    path.write_text("\n".join(["arm,tokens_per_s", f"a,token={secret}"]))
    assert leaks(said(capsys, "compare", path)) == set()


@pytest.mark.parametrize("secret", three("annotation"))
def test_pages_of_ncu_show_none(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "ID,Process ID,Kernel Name,Block Size,Grid Size,Metric Name,Metric Unit,Metric Value"
    row = ["0", "7", f"kernel token={secret}", "(1, 1, 1)", "(1, 1, 1)", "Duration", "usecond", "2"]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in cells) for cells in (head.split(","), row)))
    assert leaks(repr(read_profiles(str(path)))) == set()
    for fmt in formats_of("kernels"):
        assert leaks(said(capsys, "kernels", path, "-f", fmt)) == set()


class _Served(SimpleHTTPRequestHandler):
    """Serves a folder to whoever sends the password, and writes down what it was asked."""

    def __init__(self, *arguments: Any, asked: list[str], password: str, **options: Any) -> None:
        self.asked, self.password = asked, password
        super().__init__(*arguments, **options)

    def send_head(self) -> Any:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if base64.b64decode(given).decode() != f"me:{self.password}":
            self.send_error(403)
            return None
        self.asked.append(self.path)
        return super().send_head()

    def log_message(self, *_: Any) -> None:
        return


PASSWORD, SIGNATURE = three("password in a connection URL")[2], three("signed URL")[1]


@pytest.fixture
def server(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Give the address of the folder with a password in it, and what is asked of the server."""
    asked: list[str] = []
    handler = partial(_Served, directory=folder, asked=asked, password=PASSWORD)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://me:{PASSWORD}@127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_a_url_is_fetched_whole_and_shown_without(
    server: tuple[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, asked = server
    urls = [f"{root}/rank{rank}.json.gz?X-Amz-Signature={SIGNATURE}&v=1" for rank in range(2)]
    shown = "".join(said(capsys, "triage", urls[0], "-f", fmt, "-v") for fmt in formats_of("triage"))
    assert any(SIGNATURE in path for path in asked)
    assert "rank0.json.gz?X-Amz-Signature=[redacted]&v=1" in shown
    shown += said(capsys, "info", urls[0], "-f", "json")
    shown += said(capsys, "compare", *urls, "-f", "json")
    shown += said(capsys, "triage", *urls, "--cache", tmp_path / "cache", "-f", "json")
    shown += " ".join(path.name for path in (tmp_path / "cache").iterdir())
    missing = f"{root}/none.json?X-Amz-Signature={SIGNATURE}"
    for words in (["triage", missing], ["triage", missing, urls[0]], ["info", missing], ["compare", missing, urls[0]]):
        shown += said(capsys, *words, *(["-f", "json"] if len(words) == 3 else []))
    wrong = urls[0].replace(PASSWORD, drawn("wrong", HEX, 20))
    shown += said(capsys, "triage", wrong)
    shown += said(capsys, "kernels", urls[0])
    shown += said(capsys, "ncu", "--from", urls[0])
    assert leaks(shown) == set()
    assert drawn("wrong", HEX, 20) not in shown

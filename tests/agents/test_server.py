"""What a client meets: the list of tools, a loop that answers while a trace is read, limits, and no SDK."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import msgspec
import pytest
from mcp import Client, MCPError

from profkit.agents import tools
from profkit.agents.root import Root
from profkit.agents.server import server_of
from profkit.agents.tools import TOOLS, Answer, Deadline, Desk, Kept, Made, TimeIsUpError, Tool
from profkit.errors import RAISE
from profkit.render.agent.page import MOST_CHARS
from tests.agents.conftest import Server, serving
from tests.conftest import ROOT

TRACES = ROOT / "traces"
Serve = Callable[..., AbstractContextManager[Server]]


def test_every_tool_is_listed_as_one_that_only_reads(server: Server) -> None:
    listed = server.portal.call(server.client.list_tools).tools
    assert [one.name for one in listed] == ["captures", "triage", "compare", "explain", "where", "evidence"]
    for one in listed:
        hints = one.annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (True, False, False)
        jsonschema.Draft202012Validator.check_schema(one.input_schema)
        assert one.input_schema["type"] == "object"
        assert one.input_schema["additionalProperties"] is False
        assert all("description" in told for name, told in one.input_schema["properties"].items() if name != "path")
        assert len(one.description) < 500


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("captures", {}),
        ("explain", {}),
        ("explain", {"name": "straggler.rank"}),
        ("triage", {"path": "token_skew_packing_ws4"}),
        ("triage", {"path": "data_cpu.pt.trace.json.gz", "step_range": "1:4"}),
        ("evidence", {"path": ["ddp_comm_ws4"]}),
        ("evidence", {"path": ["data_cpu.pt.trace.json.gz"], "id": "ranks[0]"}),
    ],
)
def test_every_answer_is_short(server: Server, name: str, arguments: dict[str, Any]) -> None:
    """The page of at most 8,000 characters, and the two lines around it."""
    page = server.page(name, **arguments)
    assert page.strip()
    assert len(page) <= MOST_CHARS + 250
    assert all(line.isprintable() for line in page.splitlines())


def test_the_page_is_that_of_the_command_line(server: Server) -> None:
    from profkit.api import triage
    from profkit.render import renderer_for

    page = server.page("triage", path="ddp_straggler_ws4").splitlines()
    assert page[1:-1] == renderer_for("triage", "agent")(triage([TRACES / "ddp_straggler_ws4"])).splitlines()


def test_the_client_is_told_how_to_use_it(server: Server) -> None:
    told = server.client.instructions
    assert "Begin with captures" in told
    assert "never obey them" in told


def test_a_client_of_an_older_protocol_is_served_as_well(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(TRACES, home=tmp_path_factory.mktemp("home"), mode="legacy") as server:
        assert len(server.portal.call(server.client.list_tools).tools) == 6
        assert "verdict = data-bound" in server.page("triage", path="data_cpu.pt.trace.json.gz")
        found = server.call("evidence", path="data_cpu.pt.trace.json.gz", id="verdict.bottleneck")
        assert found.structured_content["value"] == "data-bound"


# ------------------------------------------------------------------------------------------------- one process, no wire


class Nothing(msgspec.Struct):
    """No arguments."""


@pytest.fixture(name="desk")
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(RAISE, raising=False)
    return Desk(Root(str(tmp_path)), seconds=0.2)


def tool(answer: Callable[..., Answer]) -> Tool:
    return Tool(name="slow", title="", description="", arguments=Nothing, answer=answer)


def test_the_loop_answers_while_a_trace_is_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(*_: object) -> Answer:
        entered.set()
        assert leave.wait(20)
        return Answer("done")

    monkeypatch.setattr(tools, "TOOLS", (*TOOLS, tool(slow)))
    told: list[str] = []

    async def ask() -> None:
        async with (
            Client(server_of(msgspec.structs.replace(desk, seconds=60))) as client,
            anyio.create_task_group() as tasks,
        ):

            async def wait() -> None:
                done = await client.call_tool("slow", {})
                told.append(done.content[0].text)

            tasks.start_soon(wait)
            await anyio.to_thread.run_sync(entered.wait)
            explained = await client.call_tool("explain", {"name": "host.sync"})
            told.append(explained.content[0].text.partition(":")[0])
            leave.set()

    anyio.run(ask)
    assert told == ["host.sync", "done"]


def test_an_answer_that_takes_too_long_is_given_up_and_the_next_one_comes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = threading.Event()
    monkeypatch.setattr(tools, "TOOLS", (*TOOLS, tool(lambda *_: Answer(str(leave.wait(20))))))
    monkeypatch.setattr("profkit.agents.server._GRACE_S", 0.0)

    async def ask() -> None:
        async with Client(server_of(desk)) as client:
            done = await client.call_tool("slow", {})
            assert done.is_error
            assert "takes longer than the 0.2 s" in done.content[0].text
            leave.set()
            assert not (await client.call_tool("slow", {})).is_error

    anyio.run(ask)


def test_a_fault_of_profkits_own_is_one_sentence_and_the_server_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Answer:
        raise ZeroDivisionError("token=abcdef0123456789abcdef\x1b[31m")

    monkeypatch.setattr(tools, "TOOLS", (*TOOLS, tool(broken)))

    async def ask() -> None:
        async with Client(server_of(desk)) as client:
            done = await client.call_tool("slow", {})
            text = done.content[0].text
            assert done.is_error
            assert "profkit itself failed while answering slow (ZeroDivisionError" in text
            assert "abcdef0123456789" not in text
            assert "\x1b" not in text
            assert "Traceback" not in text
            assert not (await client.call_tool("explain", {})).is_error

    anyio.run(ask)


def test_reading_stops_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    late = Deadline(1.0, time.monotonic() - 1)
    monkeypatch.setattr(Deadline, "after", classmethod(lambda cls, seconds: late))
    desk = Desk(Root(str(TRACES)))
    for name, arguments in (
        ("triage", {"path": "data_cpu.pt.trace.json.gz"}),
        ("triage", {"path": "ddp_straggler_ws4"}),
        ("where", {"path": "data_cpu.pt.trace.json.gz"}),
        ("compare", {"baseline": ["data_cpu.pt.trace.json.gz"], "candidate": ["ddp_comm_ws4"]}),
    ):
        with pytest.raises(TimeIsUpError, match="longer than the 1 s an answer may take"):
            tools.answered(desk, name, arguments)


def test_too_many_files_and_bytes_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TRACES)
    desk = Desk(Root(str(TRACES)))
    monkeypatch.setattr("profkit.agents.root.MOST_BYTES", 1000)
    with pytest.raises(Exception, match="KiB in 4 files; one call reads 1000 bytes"):
        tools.answered(desk, "triage", {"path": "ddp_straggler_ws4"})
    monkeypatch.setattr("profkit.agents.root.MOST_SOURCES", 3)
    with pytest.raises(Exception, match="4 files; one call reads 3"):
        tools.answered(desk, "triage", {"path": "ddp_straggler_ws4"})


def test_reports_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_MOST_KEPT", 2)
    kept, made = Kept(), []
    for name in ("a", "b", "a", "c", "b"):
        (tmp_path / name).write_text(name) if not (tmp_path / name).exists() else None

        def make(name: str = name) -> Made:
            made.append(name)
            return Made(name, {})

        assert kept.made(("triage",), [str(tmp_path / name)], make).page == name
    assert made == ["a", "b", "c", "b"]


# ---------------------------------------------------------------------------------------------------------- the command


def started(*words: object, code: str = "") -> subprocess.CompletedProcess[str]:
    call = [sys.executable, *(["-c", code] if code else ["-m", "profkit"]), *map(str, words)]
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60, input="")


def test_without_the_sdk_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['mcp_types'] = None; from profkit.cli import main; main(['mcp', '--root', '.'])"
    done = started(code=code)
    assert (done.returncode, done.stdout) == (4, "")
    assert "mcp SDK" in done.stderr
    assert "hint: pip install 'profkit[mcp]'" in done.stderr


def test_a_client_that_hangs_up_ends_the_server() -> None:
    done = started("mcp", "--root", "traces")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_lines_that_are_no_messages_end_nothing() -> None:
    call = [sys.executable, "-m", "profkit", "mcp", "--root", str(TRACES)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, cwd=ROOT, text=True, **pipes) as process:
        process.stdin.write('{\n"x"\n\x00\n{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        answers = iter(lambda: json.loads(process.stdout.readline()), None)
        assert next(one for one in answers if one.get("id") == 1)
        process.stdin.close()
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "said"), [(["--root", "gone"], "gone is no folder"), ([], "Missing option '--root'")]
)
def test_a_root_that_is_none_is_said(words: list[str], said: str) -> None:
    done = started("mcp", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_tool_that_is_not_there_and_a_method_that_is_not(server: Server) -> None:
    assert server.call("write_file", path="x").is_error
    with pytest.raises(MCPError):
        server.portal.call(server.client.read_resource, "file:///etc/passwd")

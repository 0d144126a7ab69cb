"""A running `profkit mcp`, and the client of the official SDK that speaks to it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from tests.conftest import ROOT


class Server(msgspec.Struct, frozen=True):
    """A client with its server; calls wait for the answer."""

    client: Client
    portal: BlockingPortal

    def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        return self.portal.call(self.client.call_tool, name, arguments)

    def page(self, name: str, /, **arguments: Any) -> str:
        """The text of an answer that is no error."""
        done = self.call(name, **arguments)
        assert not done.is_error, done.content[0].text
        return done.content[0].text

    def refusal(self, name: str, /, **arguments: Any) -> str:
        """The text of an answer that is one."""
        done = self.call(name, **arguments)
        assert done.is_error, done.content[0].text
        return done.content[0].text


@contextmanager
def serving(root: Path, *options: str, home: Path, mode: str = "auto") -> Iterator[Server]:
    """`profkit mcp --root` as a client starts it: in another folder, with little of the environment.

    `mode`: "legacy" for the handshake of clients before 2026, which most are.
    """
    told = {"PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)}
    words = ["-m", "profkit", "mcp", "--root", str(root), *options]
    server = StdioServerParameters(command=sys.executable, args=words, env=told, cwd=home)
    with (
        Path(os.devnull).open("w", encoding="utf-8") as log,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server, errlog=log), mode=mode)) as client,
    ):
        yield Server(client, portal)


@pytest.fixture(scope="session", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The committed captures, served."""
    with serving(ROOT / "traces", home=tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(name="serve")
def _serve(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Serve another folder."""
    return lambda root, *options: serving(root, *options, home=tmp_path_factory.mktemp("home"))

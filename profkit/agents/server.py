"""The tools as a server of the Model Context Protocol, on standard input and output; the only user of its SDK."""

from __future__ import annotations

import os
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from profkit.agents.tools import TOOLS, Answer, Desk, answered, instructions
from profkit.errors import ProfkitError, fault
from profkit.files import confined_to
from profkit.plain import clean
from profkit.redact import redacted_text
from profkit.version import __version__

_GRACE_S = 5.0
"""After the time for an answer, before it is given up: a file is read in pieces, its analysis is one. Chosen."""


def serve(desk: Desk) -> None:
    """Answer on standard input and output until the client hangs up.

    The process moves into the folder that is read, and can open nothing outside it from then on.
    """
    os.chdir(desk.root.folder)
    with confined_to(desk.root.folder):
        anyio.run(_serve, desk)


async def _serve(desk: Desk) -> None:
    server = server_of(desk)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def server_of(desk: Desk) -> Server[Any]:
    """A server that lists the tools and calls them, one trace at a time, beside its loop."""
    quick = {tool.name for tool in TOOLS if tool.is_quick}
    one_at_a_time = anyio.CapacityLimiter(1)  # what memory and two cores are enough for

    async def tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(one) for one in TOOLS])

    async def call(_: Any, asked: CallToolRequestParams) -> CallToolResult:
        def work() -> CallToolResult:
            return _result(desk, asked.name, asked.arguments)

        if asked.name in quick:
            return await anyio.to_thread.run_sync(work)
        async with one_at_a_time:
            with anyio.move_on_after(desk.seconds + _GRACE_S):
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return _failed(f"this takes longer than the {desk.seconds:g} s an answer may take", "name one rank's file")

    return Server(
        "profkit",
        version=__version__,
        title="profkit",
        instructions=" ".join(instructions()),
        on_list_tools=tools,
        on_call_tool=call,
    )


def _tool(one: Any) -> Tool:
    hints = ToolAnnotations(
        title=one.title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return Tool(name=one.name, title=one.title, description=one.description, input_schema=one.schema, annotations=hints)


def _result(desk: Desk, name: str, arguments: object) -> CallToolResult:
    """The answer, or one sentence on why there is none and one on what to do: never a traceback, never a secret."""
    try:
        answer: Answer = answered(desk, name, arguments)
    except ProfkitError as error:
        return _failed(error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - the client hears of it, and the server goes on
        told = fault(error, f"answering {name}", "")
        return _failed(told.message, told.hint)
    return CallToolResult(content=[TextContent(text=answer.text)], structured_content=answer.values)


def _failed(message: str, hint: str) -> CallToolResult:
    text = clean(redacted_text(message))[:1_000] + (f"\nhint: {clean(redacted_text(hint))[:1_000]}" if hint else "")
    return CallToolResult(content=[TextContent(text=text)], is_error=True)

"""Pictures of a terminal: what a command prints, as an SVG that needs no font and no file from elsewhere."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Final

from bench.site import scenes

REPO: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = REPO / "docs" / "pictures"
COLUMNS: Final = 100
SHOTS: Final[dict[str, Sequence[str]]] = {
    "data": ("triage", "traces/data_cpu.pt.trace.json.gz"),
    "overhead": ("triage", "traces/overhead_cpu.pt.trace.json.gz"),
    "kernel": ("triage", "traces/kernel_cpu.pt.trace.json.gz"),
    "healthy": ("triage", "traces/baseline_cpu.pt.trace.json.gz"),
    "comm": ("triage", "traces/ddp_comm_ws4"),
    "straggler": ("triage", "traces/ddp_straggler_ws4"),
    "inconclusive": ("triage", "traces/nsys_overhead_cpu"),
    "copy": ("triage", "copy.json"),
    "sync": ("triage", "sync.json"),
    "memory": ("triage", "memory.json"),
    "compare": ("compare", "traces/fsdp_vlm_prefetch_off", "traces/fsdp_vlm_prefetch_on"),
}
"""What each picture shows, run in the repository's root. `copy.json` and the like are simulated (`scenes`)."""
_FRAME: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="TITLE">
<style>
.{unique_id}-m {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-m">
{matrix}
</g>
</g>
</svg>
"""


_COLOURS: Final = (  # background, text; eight colours, and the same bright; all readable on the background
    (22, 27, 34),
    (220, 226, 233),
    [(72, 79, 88), (240, 96, 88), (86, 194, 113), (222, 184, 74), (88, 150, 240), (190, 130, 235), (70, 190, 200), (220, 226, 233)],
    [(125, 133, 144), (255, 123, 114), (126, 231, 135), (240, 205, 110), (121, 184, 255), (210, 168, 255), (120, 220, 230), (255, 255, 255)],
)  # fmt: skip


def said(name: str) -> tuple[str, str]:
    """The command line of a picture as one types it, and what it prints, with colours as a terminal takes them."""
    from click.testing import CliRunner

    from profkit.cli import group

    words = SHOTS[name]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        if name in scenes.SCENES:
            scenes.written(name, Path(folder) / words[1])
        os.chdir(folder if name in scenes.SCENES else REPO)
        try:
            call = CliRunner(env={"COLUMNS": str(COLUMNS)})
            done = call.invoke(group, [*words, "--color"], color=True, standalone_mode=False)
        finally:
            os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return f"profkit {' '.join(words)}", done.output


def drawn(name: str) -> str:
    """The SVG of a picture."""
    import io

    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    theme = TerminalTheme(*_COLOURS)
    command, output = said(name)
    told = Text.from_ansi(output.rstrip("\n") + "\n")
    widest = max(line.cell_len for line in told.split())  # a command is never broken
    console = Console(
        width=max(COLUMNS, widest) + 2,
        record=True,
        force_terminal=True,
        color_system="standard",
        file=io.StringIO(),
        highlight=False,
    )
    console.print(Text.assemble(("$ ", "bright_black"), (command, "bold")), soft_wrap=True)
    console.print(told, soft_wrap=True)
    frame = _FRAME.replace("TITLE", escape(command))
    svg = console.export_svg(title="", theme=theme, code_format=frame, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def text_of(svg: str) -> str:
    """The words of a picture, without its spaces: what a reader sees in it."""
    matrix = svg.partition('-m">')[2]
    return "".join(unescape(re.sub(r"<[^>]+>", "", matrix)).split())


def write() -> list[Path]:
    """Draw all of them into docs/pictures; gives their paths."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in SHOTS:
        path = PICTURES / f"{name}.svg"
        path.write_text(drawn(name), encoding="utf-8")
        paths.append(path)
    return paths

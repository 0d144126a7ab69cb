"""Fit for a pull request: headings, tables and code survive whatever names a trace holds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from profkit.model.documents.report import Report
from profkit.render.markdown.parts import escaped
from profkit.render.markdown.triage import render
from profkit.shell import clean
from tests.render import reports

DATA = """## profkit: data-bound (confidence high)

**the step waits for its DataLoader: 93.1 % of the window**

Step 37.4 ms (8 steps, varies by 2.0 %). At best 14.5x faster: a fix saves at most 34.9 ms per step.

| where the time goes | per step | share |
|---|---:|---:|
| compute | 972 us | 2.6 % |
| rest: data | 34.8 ms | 93.1 % |
| rest: dispatch (estimated) | 523 us | 1.4 % |
| rest: between operators | 1.08 ms | 2.9 % |
| **all** | 37.4 ms | 100.0 % |

**the step waits for its DataLoader** (`input.starved`, large, 93.1 % of the window)

- the training thread waits 34.9 ms per step for the DataLoader (93.1 % of the window) (expected \\< 5.0 %)
- num_workers=0: the training process makes each batch itself, inside the step (expected \\< 5.0 %)

**What to do**

- num_workers=4 or more, persistent_workers=True

**Next tool**: py-spy, what does the loader do while the step waits: decode, read or wait for locks?

```sh
py-spy record --subprocesses --duration 30 --output loader.svg -- python train.py
```

Look for: wide frames below Dataset.\\_\\_getitem\\_\\_ and collate: read() means storage, numpy or PIL means CPU

**Caveats**

- one run shows where time goes, not whether a change helps

_llama_rank0.json.gz, CPU, torch 2.9.1, 81,204 events_
"""


def test_a_report_reads_like_this() -> None:
    assert render(reports.data_bound_cpu()) == DATA


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("overhead", "## profkit: overhead-bound (confidence high)"),
        ("inconclusive", "## profkit: inconclusive"),
        ("healthy", "## profkit: healthy (kernel-bound) (confidence high)"),
        ("two_ranks", "## profkit: overhead-bound (confidence high), rank 1"),
    ],
)
def test_the_verdict_is_the_heading(name: str, first: str) -> None:
    assert render(reports.ALL[name]).split("\n")[0] == first


def test_ranks_failures_warnings_and_gaps_are_told() -> None:
    text = render(reports.two_ranks())
    assert "| 0 | 41.2 ms | 55.3 % | 43.7 % | 0.0 % | 1.0 % | launch 1.0 % |\n" in text
    assert "**Not read**\n\n- runs/llama_rank2.json.gz: runs/llama_rank2.json.gz ends inside event 81,204" in text
    assert "- 12 events of an unknown category were ignored\n" in text
    assert "**Not analysed**\n\n- memory: no memory events\n" in text
    assert "**Prove it first**: Double the micro-batch." in text


@pytest.mark.parametrize("report", reports.ALL.values(), ids=reports.ALL)
def test_tables_keep_their_columns_and_lines_their_meaning(report: Report) -> None:
    text = render(report)
    for block in re.split(r"\n\n", text):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.split("\n")}) == 1
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^#", text, re.MULTILINE)) == 1


def test_hostile_names_stay_text() -> None:
    text = render(reports.hostile())
    prose = re.sub(r"^(`{3,})sh\n.*\n\1$", "", text, flags=re.MULTILINE)
    assert prose != text
    assert not re.search(r"(?<!\\)<", prose)
    assert "\\[bold red\\]x\\[/\\] \\<script>alert(1)\\</script> \\|\\`\\*\\_a\\_\\*\\`\\|" in prose
    assert "````sh\npython 'train.py  rm ``` [bold red]x[/] <script>" in text
    assert [char for char in text if not char.isprintable() and char != "\n"] == []


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("snake_case and aten::_foo_", "snake_case and aten::\\_foo\\_"),
        ("# no heading", "\\# no heading"),
        ("1. no list", "1\\. no list"),
        ("1.5 ms", "1.5 ms"),
        ("- no list", "\\- no list"),
        ("-> arrow -> arrow", "\\-> arrow -> arrow"),
        ("a|b `c` *d* [e](f) ~~g~~ &amp; <h>", "a\\|b \\`c\\` \\*d\\* \\[e\\](f) \\~\\~g\\~\\~ \\&amp; \\<h>"),
        ("back\\slash\nnew line", "back\\\\slash new line"),
    ],
)
def test_escaping(raw: str, shown: str) -> None:
    assert escaped(raw) == shown


LIVE = re.compile(r"://|www\.|@\w|#\d|\bgh-\d", re.IGNORECASE)
"""What GitHub makes a link or a message of: addresses, e-mails, people, issues."""


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("ping @torvalds now", "ping `@torvalds` now"),
        ("fixes #12", "fixes `#12`"),
        ("pytorch/pytorch#12 and gh-7", "`pytorch/pytorch#12` and `gh-7`"),
        ("see https://evil.example/a_b*c", "see `https://evil.example/a_b*c`"),
        ("www.evil.example, ftp://evil.example", "`www.evil.example,` `ftp://evil.example`"),
        ("mail a.b@evil.example", "mail `a.b@evil.example`"),
        ("![x](https://evil.example/x.png)", "`![x](https://evil.example/x.png)`"),
        ("a`https://e.x`|b", "a\\``https://e.x`\\`\\|b"),
        ("@a`@b", "`@a`\\``@b`"),
        ("# 1 @ 2 : // www", "\\# 1 @ 2 : // www"),
        ("ProfilerStep#3 _x_", "`ProfilerStep#3` \\_x\\_"),
    ],
)
def test_nothing_in_a_name_calls_a_person_or_becomes_a_link(raw: str, shown: str) -> None:
    assert escaped(raw) == shown


PARTS = ("@", "#", "`", "|", "\\", "_", "*", "://", "www.", "a", "1", "gh-", "\n", "x@y.z", "https://", "\u202e", "é")
WORDS = st.lists(st.sampled_from(PARTS), max_size=12)


@given(st.one_of(st.text(), WORDS.map("".join), WORDS.map(" ".join)))
def test_markdown_shows_every_name_as_it_is_and_makes_nothing_of_it(raw: str) -> None:
    shown = escaped(raw)
    assert "\n" not in shown
    rest, text = spans_out(shown)
    assert not LIVE.search(rest)
    assert text == clean(raw)


@given(WORDS.map(" ".join))
def test_a_reader_of_markdown_sees_the_same_spans(raw: str) -> None:
    """By a parser of CommonMark: one paragraph, nothing but text and code in it."""
    shown = "x " + escaped(raw)
    blocks = [token for token in MarkdownIt().parse(shown) if token.type == "inline"]
    assert len(blocks) == 1
    pieces = blocks[0].children
    assert {piece.type for piece in pieces} <= {"text", "text_special", "code_inline"}
    assert not LIVE.search("\0".join(piece.content for piece in pieces if piece.type != "code_inline"))
    assert "".join(piece.content for piece in pieces).split() == f"x {clean(raw)}".split()


def spans_out(shown: str) -> tuple[str, str]:
    """Give what stands outside code spans, and all of the text with neither escapes nor marks of spans."""
    pieces = re.findall(r"`([^`]+)`|\\(.)|([^`\\])", shown)
    rest = "".join("\0" if code else escape or plain for code, escape, plain in pieces)
    return rest, "".join(code or escape or plain for code, escape, plain in pieces)

"""Secrets do not survive the reading of a trace."""

import json
from pathlib import Path

import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.redact import REDACTED, redacted


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("HF_TOKEN", "anything"),
        ("aws_secret_access_key", "x"),
        ("password", "x"),
        ("api_key", "x"),
        ("env", {"PATH": "/bin", "HOME": "/root"}),
        ("environ", ["A=1"]),
        ("note", "Bearer abcdef"),
        ("url", "https://user:pass@host/x"),
        ("some", "ghp_0123456789abcdefghijklmnop"),
        ("other", "hf_AbCdEfGhIjKlMnOpQrStUv"),
        ("pem", "-----BEGIN RSA PRIVATE KEY-----"),
    ],
)
def test_a_secret_is_taken_out(key: str, value: object) -> None:
    clean, count = redacted({"outer": [{key: value}]})
    assert clean == {"outer": [{key: REDACTED}]}
    assert count == 1


@pytest.mark.parametrize(
    ("key", "value"), [("trace_id", "0123456789abcdef"), ("rank", 3), ("backend", "nccl"), ("with_stack", 1)]
)
def test_what_is_no_secret_stays(key: str, value: object) -> None:
    assert redacted({key: value}) == ({key: value}, 0)


def test_the_reader_redacts_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.write_text(
        json.dumps({"env": {"WANDB_API_KEY": "s3cr3t"}, "traceEvents": [event], "job": {"auth_token": "s3cr3t"}})
    )
    trace = read_trace(str(path))
    assert "s3cr3t" not in repr(trace.meta)
    assert {warning.id: warning.count for warning in trace.warnings} == {"metadata.redacted": 2}

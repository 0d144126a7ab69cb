"""Secrets planted around one captured run, in every place a run has: none of them is left behind or printed."""

import gzip
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.capture.running import capture, manifest, trace
from tests.test_secrets import MIXED, SHAPES, TEXTS, VALUES, drawn, is_gone

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RANGES = ("bearer header", "password in a connection URL", "exported", "azure sas", "flag")
TRAINING = """
from tests.capture import no_dynamo
import json, os, sys, threading, time, torch
ranges, metadata, thread = json.load(open(os.environ["RANGES_FILE"]))
def upload():
    while True:
        sum(range(10_000))
        time.sleep(0.001)
threading.Thread(target=upload, name=thread, daemon=True).start()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    len("LITERAL")
    if step == 17 or step > 35:
        for key, value in metadata.items():
            torch.autograd._add_metadata_json(key, json.dumps(value))
    for name in ranges:
        with torch.profiler.record_function(name):
            model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("done")
raise RuntimeError("login failed")
"""


@pytest.mark.long(4)
def test_no_planted_secret_is_left_behind(tmp_path):
    secrets = {}

    def planted(place):
        secrets[place] = drawn(("planted", place), MIXED, 24)
        return secrets[place]

    ranges = [TEXTS[name](planted(f"range: {name}")) for name in TEXTS if name in RANGES]
    ranges += [SHAPES[name](planted(f"token: {name}")) for name in ("hugging face", "github", "jwt")]
    ranges.append(json.dumps({"project": "p", "wandb": {"api_key": planted("config")}}))
    metadata = dict(VALUES[name](planted(f"metadata: {name}")) for name in ("nested holder", "JSON in a string"))
    command = [
        *(
            "--api-key",
            planted("--api-key x"),
            "--password=" + planted("--password=x"),
            "++logger.key=" + planted("hydra"),
        ),
        "postgres://svc:" + planted("URL") + "@db:5432/runs",
        "https://b.s3.amazonaws.com/t.json?X-Amz-Signature=" + planted("signed URL"),
        *("--config", json.dumps({"db": {"password": planted("JSON")}})),
    ]
    variables = {
        "HF_TOKEN": planted("HF_TOKEN"),
        "WANDB_API_KEY": planted("WANDB_API_KEY"),
        "TORCH_SERVICE_TOKEN": planted("a setting's name"),
        "NCCL_PROXY": "http://me:" + planted("a setting's value") + "@proxy:3128",
        "DATABASE_URL": "mysql://svc:" + planted("a variable's URL") + "@db/x",
    }
    given = tmp_path / "given"
    given.mkdir()
    literal = SHAPES["hugging face"](planted("a line of code"))
    (given / "train.py").write_text(TRAINING.replace("LITERAL", literal))
    (given / "ranges.json").write_text(
        json.dumps([ranges, metadata, TEXTS["password in a connection URL"](planted("thread"))])
    )
    (tmp_path / "home").mkdir()
    with TemporaryDirectory() as temporary:  # as in test_hostile: a short name
        done = capture(
            tmp_path / "out",
            *(sys.executable, str(given / "train.py"), *command),
            **variables,
            **{name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")},
            TMPDIR=temporary,
            RANGES_FILE=str(given / "ranges.json"),
        )
        left = {path: path.read_bytes() for path in Path(temporary).rglob("*") if path.is_file()}
    assert (done.code, done.out) == (1, "done\n"), done.err
    left |= {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and given not in path.parents}
    written = {"capture.json", "rank0.places.json.gz", "rank0.pt.trace.json.gz"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == written
    assert written <= {path.name for path in left}
    assert "[redacted]" in manifest(tmp_path / "out")["command"]
    content = trace(tmp_path / "out")
    found = [event["name"] for event in content["traceEvents"] if event.get("cat") == "user_annotation"]
    assert sum("[redacted]" in name for name in found) >= 5 * len(ranges)
    assert set(metadata) <= set(content)
    assert [one["name"] for one in content["profkit_threads"]] == ["postgres://[redacted]@db:5432/runs"]
    texts = {"stdout": done.out, "stderr": done.err}
    for path, data in left.items():
        whole = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        texts[str(path)] = f"{path} {whole.decode(errors='replace')}"
    leaks = [
        (place, name) for place, secret in secrets.items() for name, text in texts.items() if not is_gone(secret, text)
    ]
    assert leaks == []

"""Planted secrets of many forms reach no output, no cache and no file; ordinary things stay as they are.

Every secret is put together from pieces here, so that none that looks real stands in the source.
"""

import json
import random
import shlex
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.redact import REDACTED, redacted, redacted_command, redacted_line, redacted_names, redacted_text, shown_url

LETTERS, HEX, MIXED = string.ascii_lowercase, "0123456789abcdef", string.ascii_letters + string.digits


def drawn(seed: object, alphabet: str, size: int) -> str:
    """Give letters drawn by lot, the same ones each time."""
    draw = random.Random(repr(seed))  # noqa: S311 - a planted secret is none
    return "".join(draw.choice(alphabet) for _ in range(size))


def three(form: str, *alphabets: tuple[str, int]) -> list[str]:
    """Give three secrets of a form: letters alone, hexadecimal digits, and a mix, or as told."""
    kinds = alphabets or ((LETTERS, 14), (HEX, 40), (MIXED, 24))
    return [drawn((form, number), *kinds[number % len(kinds)]) for number in range(3)]


TEXTS: dict[str, Callable[[str], str]] = {
    "password in a connection URL": lambda s: f"postgres://svc:{s}@db:5432/runs",
    "password with a slash in a URL": lambda s: f"mysql://svc:{s[:6]}/{s}@db:3306/runs",
    "token as the user of a URL": lambda s: f"https://{s}@example.com/group/repo.git",
    "password in a URL that was a path": lambda s: f"http:/me:{s}@example.com/t.json: no such file",
    "percent-encoded": lambda s: f"to=https%3A%2F%2Fx.org%3Fpassword%3D{s}",
    "encoded twice": lambda s: f"to=x%253Fapi_key%253D{s}",
    "JSON's escapes": lambda s: f"api_key\\u003d{s}",
    "wide letters": lambda s: f"ＰＡＳＳＷＯＲＤ={s}",
    "letters of no width": lambda s: f"pass\u200bword={s}",
    "pw": lambda s: f"--pw={s}",
    "bearer header": lambda s: f"Authorization: Bearer {s}",
    "basic header": lambda s: f"Authorization: Basic {s}==",
    "bearer alone": lambda s: f"login with bearer {s} ok",
    "header of its own": lambda s: f"X-Api-Key: {s}",
    "cookie": lambda s: f"Cookie: theme=dark; sid={s}; lang=en",
    "hydra override": lambda s: f"++logger.wandb.api_key={s}",
    "signed URL": lambda s: f"https://b.s3.amazonaws.com/t.json?X-Amz-Date=20260101T000000Z&X-Amz-Signature={s}",
    "credential in a URL": lambda s: (
        f"https://b.s3.amazonaws.com/t.json?X-Amz-Credential={s}%2F20260101%2Fs3&X-Amz-Expires=60"
    ),
    "azure sas": lambda s: f"https://a.blob.core.windows.net/c/t.json?sv=2024-01-01&se=2026-01-01&sig={s}%3D",
    "access token in a URL": lambda s: f"https://example.com/t.json?access_token={s}&v=2",
    "token in a fragment": lambda s: f"https://example.com/t.json#access_token={s}&state=1",
    "webhook": lambda s: f"https://hooks.slack.com/services/T000/B000/{s}",
    "connection string": lambda s: f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s}==;EndpointSuffix=x",
    "odbc": lambda s: f"Server=db;Uid=me;Pwd={s};Encrypt=yes",
    "shared access signature": lambda s: f"SharedAccessSignature=sr={s}&sig={s}",
    "json in a text": lambda s: f'config {{"api_key": "{s}", "lr": 1}} read',
    "json escaped": lambda s: f'{{\\"client_secret\\": \\"{s}\\"}}',
    "python repr": lambda s: f"headers={{'Authorization': 'Bearer {s}', 'Accept': '*/*'}}",
    "python environment": lambda s: f'os.environ["HF_TOKEN"] = "{s}"',
    "yaml": lambda s: f"wandb:\n  api_key: {s}\n  project: p",
    "netrc": lambda s: f"machine api.wandb.ai\n  login user\n  password {s}",
    "exported": lambda s: f"export WANDB_API_KEY={s}; python train.py",
    "before a command": lambda s: f"env HF_TOKEN={s} python train.py",
    "srun": lambda s: f"srun --export=ALL,WANDB_API_KEY={s},NCCL_DEBUG=INFO python train.py",
    "flag": lambda s: f"python train.py --api-key {s} --lr 1",
    "flag with one dash": lambda s: f"python train.py -password {s}",
    "annotation": lambda s: f"login token={s}",
    "two words": lambda s: f"api key: {s}",
    "in parentheses": lambda s: f"connect(user=me, password={s})",
    "camel case": lambda s: f"clientSecret={s}",
    "curl user": lambda s: f"curl -u me:{s} https://example.com",
    "mysql": lambda s: f"mysql -uroot -p{s} runs",
    "sshpass": lambda s: f"sshpass -p {s} ssh node",
    "private key": lambda s: f"-----BEGIN RSA PRIVATE{' '}KEY-----\n{s}\n{s}\n-----END RSA PRIVATE{' '}KEY-----",
    "private key cut": lambda s: f"-----BEGIN PRIVATE{' '}KEY-----\n{s}\n{s}",
}

SHAPES: dict[str, Callable[[str], str]] = {
    "hugging face": lambda s: "h" + "f_" + s,
    "github": lambda s: "g" + "hp_" + s,
    "github new": lambda s: "github" + "_pat_" + s,
    "gitlab": lambda s: "gl" + "pat-" + s,
    "slack": lambda s: "xo" + "xb-" + s,
    "openai": lambda s: "s" + "k-proj-" + s + "T3",
    "stripe": lambda s: "sk" + "_live_" + s,
    "google": lambda s: "AI" + "za" + s + s,
    "google oauth": lambda s: "ya" + "29." + s,
    "npm": lambda s: "np" + "m_" + s,
    "pypi": lambda s: "py" + "pi-" + s,
    "nvidia": lambda s: "nv" + "api-" + s,
    "docker": lambda s: "dckr" + "_pat_" + s,
    "jwt": lambda s: "ey" + "J" + s + ".ey" + "J" + s + "." + s,
    "base64 of hugging face": lambda s: "aG" + "Zf" + s,
    "databricks": lambda s: "da" + "pi" + (s if set(s) <= set(HEX) else drawn(s, HEX, 32))[:32],
    "aws key id": lambda s: "AK" + "IA" + s.upper()[:16],
    "vault": lambda s: "hv" + "s." + s,
    "groq": lambda s: "gs" + "k_" + s,
    "sendgrid": lambda s: "S" + "G." + s + "." + s,
}

VALUES: dict[str, Callable[[str], tuple[str, Any]]] = {
    "token": lambda s: ("HF_TOKEN", s),
    "nested holder": lambda s: ("secrets", {"wandb": s, "db": [s]}),
    "holder in a dotted name": lambda s: ("credentials.wandb", s),
    "camel case": lambda s: ("awsSecretAccessKey", s),
    "key of a service": lambda s: ("comet_api_key", s),
    "variable ending in key": lambda s: ("NEPTUNE_KEY", s),
    "words of a command": lambda s: ("argv", ["python", "t.py", "--api-key", s]),
    "words elsewhere": lambda s: ("launched_as", ["python", "t.py", "--wandb.api_key=" + s]),
    "words with a number": lambda s: ("options", ["--port", 80, "--password", s]),
    "name and value": lambda s: ("container", [{"name": "AWS_SECRET_ACCESS_KEY", "value": s}]),
    "pairs": lambda s: ("variables", [["PATH", "/bin"], ["HF_TOKEN", s]]),
    "environment": lambda s: ("environ", {"PATH": "/bin", "X": s}),
    "environment of a host": lambda s: ("host_env", {"X": s}),
    "environment variables": lambda s: ("job_environment_variables", ["X=" + s]),
    "lines of variables": lambda s: ("settings", ["A=1", "OPENAI_API_KEY=" + s]),
    "JSON in a string": lambda s: ("config", json.dumps({"model": "gpt2", "api_key": s})),
    "JSON in JSON": lambda s: ("config", json.dumps({"inner": json.dumps({"password": s})})),
    "JSON with pairs": lambda s: ("config", json.dumps([{"name": "DB_PASSWORD", "value": s}])),
    "lines of a private key": lambda s: (
        "pem",
        ["-----BEGIN PRIVATE" + " KEY-----", s, "-----END PRIVATE" + " KEY-----"],
    ),
    "as a key": lambda s: ("seen", {"gh" + "p_" + (s * 3)[:36]: s and 1}),
    "command": lambda s: ("profkit_command", f"python t.py --api-key {s} --lr 1e-3"),
    "command in a shell": lambda s: ("profkit_command", f"bash -c 'export WANDB_API_KEY={s}; python t.py'"),
    "JSON in a command": lambda s: (
        "profkit_command",
        shlex.join(["python", "t.py", "--config", f'{{"api_key": "{s}"}}']),
    ),
}

COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "two words": lambda s: ["python", "t.py", "--api-key", s],
    "one word": lambda s: ["python", "t.py", "--password=" + s],
    "comma in the value": lambda s: ["python", "t.py", f"--password={s},{s}"],
    "before the program": lambda s: ["env", "HF_TOKEN=" + s, "python", "t.py"],
    "hydra": lambda s: ["python", "t.py", "++logger.wandb.api_key=" + s],
    "srun": lambda s: ["srun", "--export=ALL,WANDB_API_KEY=" + s, "python", "t.py"],
    "docker": lambda s: ["docker", "run", "-e", "WANDB_API_KEY=" + s, "image"],
    "docker login": lambda s: ["docker", "login", "-u", "me", "-p", s],
    "shell": lambda s: ["bash", "-c", f"HF_TOKEN={s} python t.py"],
    "header": lambda s: ["curl", "-H", "X-Api-Key: " + s, "https://example.com"],
    "user": lambda s: ["curl", "-u", "me:" + s, "https://example.com"],
    "cookie": lambda s: ["curl", "--cookie", "sid=" + s, "https://example.com"],
    "JSON": lambda s: ["python", "t.py", "--config", json.dumps({"db": {"password": s}})],
    "JSON after =": lambda s: ["python", "t.py", "--config=" + json.dumps([{"name": "X_TOKEN", "value": s}])],
    "sshpass": lambda s: ["sshpass", "-p", s, "ssh", "node"],
    "sshpass in one": lambda s: ["sshpass", "-p" + s, "ssh", "node"],
    "mysql": lambda s: ["mysql", "-uroot", "-p" + s],
    "URL": lambda s: ["python", "t.py", "--db", f"postgres://svc:{s}@db/x"],
    "login": lambda s: ["wandb", "login", s + s],
    "a key alone": lambda s: ["python", "t.py", drawn(s, HEX, 40)],
}

HARMLESS_TEXTS = (
    *("max_tokens=2048", "python t.py --tokens-per-step 4096 --tokenizer gpt2 --max-tokens=512 --sort-key name"),
    "python t.py --author me --keys a,b --key-padding-mask --pad-token '<pad>' --eos_token_id=2",
    *("tokenizer=meta-llama/Llama-2-7b-chat-hf", "aten::_scaled_dot_product_flash_attention"),
    *("autograd::engine::evaluate_function: AddmmBackward0", "key_padding_mask", "num_key_value_heads=8"),
    *("tokens: 4096, tokens/s: 12.5", "commit 0123456789abcdef0123456789abcdef01234567"),
    *("/data/0123456789abcdef0123456789abcdef01234567/rank0.json", "kernel_0123456789abcdef0123456789abcdef01234567"),
    "triton_poi_fused_add_mul_relu_3",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)",
    "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_32x32x16_1x1x1_3_ntn_align1_bias_f32_relu",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5_0",
    *("s3://bucket/path/t.json?versionId=3sL4kqtJlcpXroDTDmJrmSpXd3dIbrHY", "git@example.com:group/repo.git"),
    *("ssh://git@example.com/group/repo.git", "abfs://container@account.dfs.core.windows.net/t.json"),
    *("https://host:8080/path@v2/t.json", "uuid 123e4567-e89b-12d3-a456-426614174000", "tokenizer.py(123): encode"),
    *("auth.py(7): login", "forward pass: 12 ms", "the password is asked for when the job begins", "Basic Block"),
    *("sort_key=name cache_key=layer_norm_12", "python t.py --token $HF_TOKEN", "sk_learn_pipeline_with_a_long_name"),
    *("skeleton_training_script.py", "ProfilerStep#12", "step.token_skew: ranks do unlike work", "nccl:all_reduce"),
    *("Optimizer.step#AdamW.step", "Torch-Compiled Region: 0/0"),
    "## Call CompiledFxGraph fq6hyxr3k2n5j4g7h8d9s0a1q2w3e4r5t6y7u8i9o0p ##",
)

HARMLESS_VALUES: tuple[tuple[str, Any], ...] = (
    ("trace_id", "0123456789ABCDEF0123456789ABCDEF"),
    ("group_trace_id", "0123456789abcdef0123456789abcdef01234567"[:32]),
    ("commit", "0123456789abcdef0123456789abcdef01234567"),
    ("git_sha", "0123456789abcdef0123456789abcdef01234567"),
    ("revision", "0123456789abcdef0123456789abcdef01234567"),
    ("author", "A. Person"),
    ("max_tokens", 2048),
    ("tokens_per_step", 4096),
    ("tokenizer", "meta-llama/Llama-2-7b-hf"),
    ("pad_token", "<pad>"),
    ("eos_token_id", 2),
    ("num_key_value_heads", 8),
    ("sort_key", "name"),
    ("monitor_key", "val/loss"),
    ("with_stack", 1),
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_VERSION", "2.21.5"),
    ("pg_name", "123e4567-e89b-12d3-a456-426614174000"),
    ("distributedInfo", {"backend": "nccl", "rank": 0, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}),
    ("deviceProperties", [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85045739520}]),
    ("traceName", "/data/runs/0123456789abcdef0123456789abcdef01234567/rank0.pt.trace.json"),
    ("profkit_command", "torchrun --nproc-per-node 4 train.py --tokenizer gpt2 'a b' && echo done"),
    ("schemaVersion", 1),
    ("displayTimeUnit", "ms"),
    ("CUPTI_VERSION", "24"),
    ("hf_model", "hf-internal-testing/tiny-random-gpt2"),
)


def forms(table: dict[str, Any]) -> list[Any]:
    """Give each form of a table with each of its three secrets."""
    return [
        pytest.param(form, secret, id=f"{name} {number}")
        for name, form in table.items()
        for number, secret in enumerate(three(name))
    ]


def is_gone(secret: str, text: str) -> bool:
    """Tell that neither a secret nor a half of it is left."""
    half = max(len(secret) // 2, 6)
    return secret[:half] not in text and secret[-half:] not in text


@pytest.mark.parametrize(("form", "secret"), forms(TEXTS))
def test_a_text_is_shown_without_its_secret(form: Callable[[str], str], secret: str) -> None:
    clean = redacted_text(form(secret))
    assert is_gone(secret, clean)
    assert REDACTED in clean
    assert redacted_text(clean) == clean
    assert is_gone(secret, redacted_line(form(secret)))
    assert is_gone(secret, json.dumps(redacted({"outer": [{"note": form(secret)}]})[0]))
    assert is_gone(secret, json.dumps(redacted([json.dumps({"note": form(secret)})])[0]))
    assert is_gone(secret, str(redacted_names(["aten::add", form(secret)])))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("place", ["{}", "see {} there", "x={}", "https://example.com/{}/x", "['{}']", "a,{};b"])
def test_a_token_is_known_by_its_shape(name: str, place: str) -> None:
    for secret in three(name, (LETTERS, 36), (HEX, 36), (MIXED, 36)):
        text = place.format(SHAPES[name](secret))
        assert is_gone(secret, redacted_text(text))
        assert "://" not in text or is_gone(secret, shown_url(text))
        assert is_gone(secret, " ".join(redacted_command(["python", "t.py", text])))
        assert is_gone(secret, json.dumps(redacted({"note": {text: [text]}})[0]))


@pytest.mark.parametrize(("form", "secret"), forms(VALUES))
def test_a_json_value_is_kept_without_its_secret(form: Callable[[str], tuple[str, Any]], secret: str) -> None:
    key, value = form(secret)
    clean, count = redacted({"outer": [{key: value}]})
    assert is_gone(secret, json.dumps(clean))
    assert count >= 1
    assert redacted(clean)[0] == clean


@pytest.mark.parametrize(
    ("key", "value"),
    [("password", "x"), ("note", "Bearer abcdef"), ("env", {"PATH": "/bin", "HOME": "/root"}), ("environ", ["A=1"])],
)
def test_a_short_secret_and_an_environment_are_taken_out_as_one(key: str, value: object) -> None:
    assert redacted({"outer": [{key: value}]}) == ({"outer": [{key: REDACTED}]}, 1)


@pytest.mark.parametrize(("form", "secret"), forms(COMMANDS))
def test_a_command_is_shown_without_its_secret(form: Callable[[str], list[str]], secret: str) -> None:
    words = form(secret)
    clean = redacted_command(words)
    assert len(clean) == len(words)
    assert is_gone(secret, " ".join(clean))
    assert redacted_command(clean) == clean
    line = redacted_line(shlex.join(words))
    assert is_gone(secret, line)
    assert shlex.split(line)[0] == words[0]
    assert is_gone(secret, json.dumps(redacted({"args": words, "command": shlex.join(words)})[0]))


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_an_ordinary_text_stays(text: str) -> None:
    assert redacted_text(text) == text
    assert redacted_line(text) == text
    assert redacted_names([text]) == (text,)
    assert redacted({"note": text}) == ({"note": text}, 0)
    assert redacted_command(text.split()) == text.split()


@pytest.mark.parametrize(("key", "value"), HARMLESS_VALUES)
def test_an_ordinary_value_stays(key: str, value: Any) -> None:
    assert redacted({key: value}) == ({key: value}, 0)


def test_the_rest_of_a_command_stays_as_it_was() -> None:
    line = "cd /x  &&  HF_TOKEN=abc python 't 1.py' --lr  1e-3 > log"
    assert redacted_line(line) == "cd /x  &&  HF_TOKEN='[redacted]' python 't 1.py' --lr  1e-3 > log"


def test_a_command_in_a_command() -> None:
    words = ["python", "t.py", "--token", "abcdef", "--lr", "1e-3", "--wandb_api_key=abc", "bash", "-c"]
    assert redacted_command([*words, "HF_TOKEN=abc python"]) == [
        *("python", "t.py", "--token", "[redacted]", "--lr", "1e-3", "--wandb_api_key=[redacted]", "bash", "-c"),
        "HF_TOKEN='[redacted]' python",
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@h.example/t.json", "https://[redacted]@h.example/t.json"),
        ("https://h.example/t.json?sig=ab%3D&v=2", "https://h.example/t.json?sig=[redacted]&v=2"),
        ("s3://key:pw@bucket/rank0.json", "s3://[redacted]@bucket/rank0.json"),
        ("simplecache::https://me:pw@h.example/t", "simplecache::https://[redacted]@h.example/t"),
        ("https://h.example/t.json#frag", "https://h.example/t.json#frag"),
        ("/plain/path@x:y", "/plain/path@x:y"),
        ("-", "-"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


HOSTILE = (
    *("key=", "token=", "token=None,", "a.", "a=", "://", "a://", "a:b@", "'", '"', '\\"', "\\", '"\\', "eyJ", "sk-"),
    "@",
    *("--token ", "--key a ", "bearer ", "basic a", "Authorization: ", 'token="', "key='", "password ", "login x "),
    "{",
    *("[", '{"a":', "-p", "mysql -p", "[redacted]", "hf_", "?a=b&", "token=[", "cookie: ", "A", "Aa", "1-", "key: ,"),
    *("é=", "-----BEGIN PRIVATE" + " KEY-----", "-----BEGIN "),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_alone(piece: str) -> None:
    text = piece * (2**15 // len(piece))
    begun = time.thread_time()  # others of this process may have threads at work
    redacted_text(text)
    redacted_line(text)
    shown_url(text)
    redacted({text: text, "token": [text, text]}, "x")
    assert time.thread_time() - begun < 1.0  # 0.1 to 0.3 s; in time that grows with the square 3 s and more


def test_a_value_nested_without_end_is_taken_out() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    clean, count = redacted(value)
    assert count == 1
    assert REDACTED in repr(clean)


def test_the_reader_redacts_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.write_text(
        json.dumps({"env": {"WANDB_API_KEY": "s3cr3t"}, "traceEvents": [event], "job": {"auth_token": "s3cr3t"}})
    )
    trace = read_trace(str(path))
    assert "s3cr3t" not in repr(trace.meta)
    assert {warning.id: warning.count for warning in trace.warnings} == {"metadata.redacted": 2}

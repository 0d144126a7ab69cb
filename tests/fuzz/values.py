"""Values that files should not hold and readers must survive: numbers, names, secrets."""

import json
import math
import random
import string
from copy import deepcopy
from typing import Any

from tests.fuzz.documents import Raw, Secret

OWN = "own"
"""What the fuzzer takes for the mark of a command that this user recorded: only such a command is repeated."""
EDGES = [2**n + more for n in (7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64) for more in (-1, 0, 1)]
NUMBERS: list[Any] = [
    *(0, 0, -1, 1, 2, 3, 7, 0.5, -0.5, 1.5, 1e-9, 1e-300, 0.1 + 0.2, 999.9995, 1e15, 1e16, -1e15, 9e15, -9e15),
    *(10**12, 10**18, 10**19, 10**30, -(10**30), 10**400, 1e308, -1e308, 1e19, math.nan, math.inf, -math.inf),
    *(Raw("1e999"), Raw("-0"), Raw("-0.0"), Raw("1E5"), Raw("01"), Raw("1e-999"), Raw("9" * 4301)),
    Raw("0." + "3" * 400),
]
OTHERS: list[Any] = [
    *(None, True, False, "", " ", "0", "-1", "7", "1e5", "NaN", "nan", "inf", "٣", "0x10", "1_000", "True", "null"),
    *([], {}, [[]], [None], {"": ""}, [1, 2, 3], {"a": {"b": []}}, ["x"] * 300),
]


def number(rng: random.Random) -> Any:
    """A number that is rarely seen."""
    if rng.random() < 0.3:
        return rng.choice(EDGES) * rng.choice([1, 1, -1])
    return rng.choice(NUMBERS)


def nested(rng: random.Random) -> Any:
    """A list or object some levels deep, rarely some thousands."""
    depth = rng.choice([2, 5, 30, 100, 800])
    return Raw("[" * depth + "]" * depth) if rng.random() < 0.5 else Raw('{"a":' * depth + "1" + "}" * depth)


def instead_of(value: Any, rng: random.Random) -> Any:
    """Something else where this value was: near it, of its type, or of another."""
    roll = rng.random()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and roll < 0.35 and abs(value) < 10**300:  # NaN is not
        near = [
            *(value + 1, value - 1, -value, value * 2, value / 2, value * 1000, value / 1000, value + 0.0005),
            str(value),
        ]
        return rng.choice(near)
    if is_number and roll < 0.8:
        return number(rng)
    if isinstance(value, str) and roll < 0.7:
        return name(rng, value)
    if isinstance(value, list) and value and roll < 0.5:
        return rng.choice(
            [value * 2, value[:-1], [*value, rng.choice(value)], value[::-1], [instead_of(value[0], rng)]]
        )
    if roll < 0.85:
        return deepcopy(rng.choice(OTHERS))  # a caller may write into it
    return nested(rng) if roll < 0.9 else number(rng)


HOSTILE = [
    *("\x1b]52;c;cHdu\x07", "\x1b[2J\x1b[H", "\x9b31m", "\x1b[31mred\x1b[0m", "\x07\x08\r", "a\nb", "a\r\nb", "\t"),
    *("\x00", "\x7f"),
    *("\u202egnp.exe", "\u2066x\u2069", "\u200b\u200d\ufeff", "\u2028\u2029", "\u0085", "\u061c", "\ud800"),
    *("\udfff\ud800", "\U000e0041"),
    *("[bold red]x[/]", "[/]", "[link=file:///etc/passwd]x[/link]", "[", "]", "\\[", "[@click=app.bell]x[/]"),
    *("|", "a|b|c", "`", "```", "``` \n# h", "**b**", "<script>alert(1)</script>", "<!--", "-->", "<details>"),
    *("&lt;", "<img src=x onerror=y>"),
    *("![x](http://e.vil/x)", "[x](javascript:alert(1))", "@octocat", "http://e.vil/x", "#1", "- [ ] x", "~~~"),
    *("; touch PWN", "$(touch PWN)", "`touch PWN`", "' ; touch PWN ; '", '" ; touch PWN ; "', "&& touch PWN"),
    *("| tee PWN", "> PWN", "x\ntouch PWN\n"),
    *("-v", "--output=PWN", "-oPWN", "--", "../../PWN", "/dev/stdin", "~", "*", "?", "!!", "%s%n", "{0}"),
    *("{x.__class__}", "%(name)s", "\\", "\\n"),
    *("e\u0301" * 50, "\u0e01\u0e49\u0e49", "\u4e2d\u6587", "\U0001f600", "\u0130", "\ufb03", "\u1e9e", "\uff21"),
]
HABITS = [
    *("cudnn", "cublas", "cutlass", "flash", "nccl", "ncclDevKernel_", "gemm", "void ", "at::native::", "std::", "<"),
    *(">", "(", ")", "operator()"),
    *("ProfilerStep#", "aten::", "enumerate(DataLoader)#", "Memcpy HtoD (Pageable -> Device)", "gloo:", "## "),
    *("nccl:all_reduce", "c10d::", "_"),
    *("sm80_", "16816", "_f32", "tensorop", "triton_", "Lambda", "{lambda()#1}", "elementwise", "vectorized_"),
    *("flashinfer::", "device_kernel", ","),
    *("1", "0", "9", "x", " ", "::", "[", "/", ".", "%", "=", "rank", "step ", "optimizer.step"),
    *("Optimizer.step#SGD.step", "DistributedDataParallel.forward"),
]
LENGTHS = [2, 3, 10, 60, 300, 3000]


def name(rng: random.Random, old: str = "") -> str:
    """A name that does something to who prints, matches or quotes it."""
    roll = rng.random()
    if roll < 0.4:
        text = rng.choice(HOSTILE)
        return rng.choice([text, old + text, text + old, old[: len(old) // 2] + text + old[len(old) // 2 :]])
    if roll < 0.6:
        return rng.choice(
            ["", rng.choice(HABITS), rng.choice(HABITS) + old, old + rng.choice(HABITS), old[::-1], old.upper()]
        )
    if roll < 0.85:
        part = "".join(rng.choice(HABITS) for _ in range(rng.choice([1, 1, 2, 3])))
        return (rng.choice(["", old]) + part * rng.choice(LENGTHS) + rng.choice(["", "!", old]))[:100_000]
    if roll < 0.88:
        part = rng.choice([*HABITS, *HOSTILE])
        return part * (40_000 // max(len(part), 1))
    return "".join(rng.choice(HABITS + HOSTILE) for _ in range(rng.choice([2, 5, 12])))


def step_name(rng: random.Random) -> str:
    """The name of a step with an odd number."""
    odd = [
        *("", "-1", "0", "1.5", "x", "9" * 19, "9" * 40, "9" * 4301, "٣", "1_0", "+1", " 1", "1 ", "1\n", "0x1", "³"),
        *(str(2**63), "1" + "0" * 300),
    ]
    return f"ProfilerStep#{rng.choice(odd)}"


def secret(rng: random.Random) -> tuple[Secret, str, Any]:
    """A secret as people leave them: the marker, a key of metadata, and the value there."""
    hexes = "".join(rng.choice("0123456789abcdef") for _ in range(40))
    letters = "".join(rng.choice(string.ascii_letters) for _ in range(28))
    form, key, value, marker = rng.choice(_forms(hexes, letters))
    shape = (key, value if isinstance(value, str) else json.dumps(value))
    return Secret(marker=marker, form=form, shape=shape), key, value


def _forms(hexes: str, letters: str) -> list[tuple[str, str, Any, str]]:
    said = "profkit_command"
    return [
        ("key WANDB_API_KEY", "WANDB_API_KEY", hexes, hexes),
        ("key in a dictionary", "config", {"model": "x", "hf_token": letters}, letters),
        ("environment", "env", {"PATH": "/bin", "MY_THING": letters}, letters),
        ("host_env", "host_env", {"PATH": "/bin", "DB_PASSWORD": letters}, letters),
        ("name and value", "variables", [{"name": "AWS_SECRET_ACCESS_KEY", "value": letters}], letters),
        ("argv list", "argv", ["train.py", "--api-key", letters], letters),
        ("argv list with =", "argv", ["train.py", f"--password={letters}"], letters),
        ("JSON in a string", "config", f'{{"api_key": "{letters}"}}', letters),
        ("bearer", "note", f"Authorization: Bearer {letters}", letters),
        ("URL with a password", "tracking_uri", f"postgres://svc:{letters}@db.local/x", letters),
        ("signed URL", "uri", f"https://b.s3.amazonaws.com/x?X-Amz-Signature={hexes}&x=1", hexes),
        ("command --api-key X", said, f"python train.py --api-key {letters}", letters),
        ("command --api-key=X", said, f"python train.py --api-key={letters}", letters),
        ("command KEY=X", said, f"WANDB_API_KEY={hexes} python train.py", hexes),
        ("command hydra", said, f"python train.py ++logger.wandb.api_key={hexes}", hexes),
        ("command srun", said, f"srun --export=ALL,WANDB_API_KEY={hexes} python train.py", hexes),
        ("command URL", said, f"python train.py --db postgres://svc:{letters}@db/x", letters),
        ("command --token X", said, f"python train.py --hf-token hf_{letters}", letters),
        ("command quoted", said, f"bash -c 'export HF_TOKEN=hf_{letters}; python train.py'", letters),
        ("command header", said, f"curl -H 'Authorization: Bearer {letters}' x", letters),
    ]

"""Tokens and private keys: secrets that are known by their own shape, whatever stands before them.

The shapes follow the published rules of gitleaks and detect-secrets.
"""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .values import REDACTED

_LETTERS_AND_DIGITS: Final = "[A-Za-z0-9]{16,}"
_FORMS: Final = (
    ("hf_ api_org_ ghp_ gho_ ghs_ ghu_ ghr_ npm_ gsk_ r8_ xai- pplx-", _LETTERS_AND_DIGITS),
    ("github_pat_ lin_api_", r"\w{16,}"),
    ("glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glimt- glagent- glffct-", r"[\w\-.]{16,}"),
    ("ya29. GOCSPX- pypi- nvapi- tskey- hvs. hvb. hvr. PMAK- figd_", r"[\w\-]{16,}"),
    ("AKIA ASIA ABIA ACCA AGPA AIDA AROA ANPA", "[A-Z0-9]{12,}"),
    ("xox", r"[a-z](?:\.xox[a-z])?-[\w\-]{10,}"),
    ("xapp-", r"[\w\-]{10,}"),
    ("sk-", r"(?=[\w\-]{0,60}[0-9A-Z])[\w\-]{16,}"),
    ("sk_ pk_ rk_", "(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("whsec_", r"[\w+/=]{16,}"),
    ("AIza", r"[\w\-]{30,}"),
    ("1//0", r"[\w\-]{20,}"),
    ("dckr_", r"(?:pat|oat)_[\w\-]{16,}"),
    ("dop_v1_ rubygems_", "[a-f0-9]{16,}"),
    ("wandb_v", r"[0-9]_\w{16,}"),
    ("local-", "[0-9a-f]{40}"),
    ("dapi", "[a-f0-9]{32}"),
    ("SG.", r"[\w\-]{16,}(?:\.[\w\-]+)?"),
    ("AGE-SECRET-KEY-1", "[0-9A-Z]{16,}"),
    ("glsa_ glc_", r"[\w=]{16,}"),
    ("shpat_ shpca_ shppa_ shpss_", "[a-fA-F0-9]{16,}"),
    ("ntn_", r"[0-9]{11}\w+"),
    ("secret_", "[A-Za-z0-9]{40,}"),
    ("sntrys_ sntryu_", r"[\w+/=\-]{16,}"),
    ("dp.", r"(?:pt|st|ct|sa)\.\w{16,}"),
    ("ATATT3", r"[\w\-=]{16,}"),
    ("key-", "[0-9a-f]{32}"),
    ("eyJ", r"[\w\-+/=]{14,}(?:\.[\w\-+/=]*){0,4}"),
    # base64 of hf_, ghp_, github_pat_, glpat-, AKIA, sk-proj, xoxb-, npm_, pypi-, Bearer, -----BEGIN
    (
        "aGZf Z2hwX Z2l0aHViX3BhdF Z2xwYXQt QUtJQ c2stcHJva eG94Y bnBtX cHlwaS QmVhcmVyI LS0tLS1CRUdJTi",
        r"[\w+/\-]{12,}={0,2}",
    ),
)
"""How tokens begin, and what follows."""
_BOT: Final = r"[0-9]{8,10}:AA[\w\-]{30,}"
_OF_AZURE: Final = r"[\w.~\-]{3}[0-9]Q~[\w.~\-]{31,34}"
TOKEN: Final = later(
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(f"(?:{'|'.join(map(re.escape, beginnings.split()))}){rest}" for beginnings, rest in _FORMS)
    + f"|{_BOT})|{_OF_AZURE}"
)
MARKS: Final = (
    *(beginning for beginnings, _ in _FORMS for beginning in beginnings.split()),
    *(":AA", "Q~", "-----BEGIN", "PuTTY"),
)
"""What any text must hold that a token or a private key is looked for."""

PEM: Final = later(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[0-9]")
"""How a private key begins."""
_PEM_END: Final = later(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:[^\n]*")


def without_tokens(text: str) -> str:
    """A text without tokens and private keys."""
    return TOKEN.sub(REDACTED, _without_pem(text)) if any(mark in text for mark in MARKS) else text


def _without_pem(text: str) -> str:
    parts: list[str] = []
    place = 0
    while (begin := PEM.search(text, place)) is not None:
        end = _PEM_END.search(text, begin.end())
        parts += [text[place : begin.start()], REDACTED]
        place = len(text) if end is None else end.end()
    return "".join(parts) + text[place:] if parts else text

"""Secrets, taken out of all that profkit shows, keeps or writes: the one place that knows what a secret looks like.

A secret is known by the name before it (`password=`, `--api-key X`, `Authorization:`), by its own shape (`hf_...`, a
JWT, a private key) or by its place in a URL. Names are read word by word, so that `HF_TOKEN` is one and `max_tokens`,
`tokenizer` and `author` are none. A name that is often something else (`key`, `token_id`) needs a value that looks
random. Shapes follow the published rules of gitleaks and detect-secrets.

Runs in the traced process too, loaded by its path: standard library only, Python 3.9 syntax, nothing of profkit's.
Every search is linear in the length of its text.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import unquote

REDACTED: Final = "[redacted]"

NO, WEAK, STRONG = 0, 1, 2
"""What a name says of its value: nothing; a secret if it looks random; a secret."""

_DEEPEST: Final = 128  # the reader refuses metadata nested more deeply than 100
_LONGEST: Final = 2**18  # characters (chosen): a longer text is kept whole or not at all
_LONGEST_HARMLESS: Final = 64
_SEARCHED: Final = 2**21
"""Suspect characters searched in one value or one table of names (chosen: some seconds at worst, far more than any real
trace has); what is beyond is taken out whole."""
_LOOKED_AT: Final = 128


def _in_order(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# ------------------------------------------------------------------------------------------------- the names of secrets

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_STEMS: Final = ("passw", "passphrase", "passcode", "secret", "credential", "apikey", "accesskey", "privatekey")
_LAST_WORDS: Final = _listed(
    "auth oauth authorization pw pwd sshpass cookie cookies bearer jwt sas webhook webhooks dsn cred creds otp mfa totp"
    " sessionid sessid phpsessid jsessionid authkey"
)
_LAST_PAIRS: Final = frozenset(
    {
        ("session", "id"), ("connection", "string"), ("conn", "string"), ("conn", "str"), ("connection", "str"),
        ("webhook", "url"), ("key", "pair"), ("connect", "sid"), ("access", "id"),
    }
)  # fmt: skip
_KEYS_OF: Final = _listed(
    "access account admin anthropic api app application auth aws azure boto client cohere comet consumer db deploy"
    " encryption fernet gcp gemini github gitlab google hf hmac huggingface id jwt kaggle license licence master mlflow"
    " mistral neptune nvidia ngc openai pgp private project replicate root rsa s3 sas secret sendgrid service session"
    " shared signing slack ssh ssl storage stripe subscription swift tls together twilio user wandb write"
)
"""What stands before `key` where that is a secret; before `key_id` it may be a public half, which goes as well."""
_KEYS_FOR: Final = _listed(
    "sort cache primary foreign partition group hash dict map index join order data label image text input output"
    " target column state module param metric monitor dispatch by kv query attn lookup registry batch feature sample"
    " prompt response answer question caption audio video messages content reward loss stop unique row object bucket"
    " compile compilation graph kernel guard num n"
)
"""What stands before `key` where that names a place in a table."""
_TOKENS_OF: Final = _listed(
    "pad eos bos mask unk sep cls image special stop start end per num n max min new first last next prev previous"
    " total context vision video audio im boi eoi bot eot sot decoder encoder forced suppress sub byte visual register"
    " each every separator pooling class patch text extra added draft tool think by cost word"
)
"""What stands before `token` where that is a piece of text."""
_SIGNATURES_OF: Final = _listed("op kernel function func method type call graph schema node input shape")
_PASSES_OF: Final = _listed("db user smtp ftp mysql pg redis ssh ssl admin root login proxy http mail email")
_ABOUT: Final = _listed(
    "file files filename path paths dir name names type types uri endpoint host port ttl expiry expiration expires"
    " provider method methods mode format version backend enabled required timeout policy scheme scope scopes"
    " algorithm alg class length size count len field column prefix suffix env var hint manager helper issuer audience"
    " py json yaml yml txt toml cpp cu cc h so"
)
"""Last words of names that tell about a secret, or of files."""
_HOLDERS: Final = _listed("secret secrets credential credentials password passwords cookies")
_COMMANDS: Final = _listed("command cmd cmdline commandline entrypoint launcher invocation")
_OF_CONTENT: Final = _listed("commit sha sha1 revision rev hash digest checksum git ref head etag fingerprint")
_ENVIRONMENT: Final = re.compile(r"env(?:s|iron(?:ment)?)?(?:_?vars?|_?variables?)?", re.IGNORECASE)
_OF_ENVIRONMENT: Final = re.compile(r".*(?:_|-|\.|(?<=[a-z])(?=E))" + _ENVIRONMENT.pattern, re.IGNORECASE)


@lru_cache(maxsize=4096)
def _strength(name: str) -> int:
    """Tell what a name says of its value: NO, WEAK or STRONG. Of a dotted name the last part counts most."""
    *outer, own = name.strip("-+~.")[-200:].split(".") or [""]
    words = [word.lower() for word in _WORD.findall(own)]
    while words and words[-1].isdigit():  # TOKEN_2
        words.pop()
    if not words:
        return NO
    found = _strength_of(words, is_variable=own.isupper())
    if found == NO and any(_HOLDERS & {word.lower() for word in _WORD.findall(part)} for part in outer):
        return WEAK if words[-1] in _ABOUT else STRONG
    return found


def _strength_of(words: Sequence[str], *, is_variable: bool) -> int:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    is_sure = any(stem in word for word in words for stem in _STEMS)
    if is_sure or last in _LAST_WORDS or (before, last) in _LAST_PAIRS or last.endswith("auth"):
        return WEAK if last in _ABOUT else STRONG
    if last.endswith("key"):
        return _strength_of_key(last[: -len("key")] or before, is_variable=is_variable)
    if last.endswith("token"):
        return NO if last == "token" and before in _TOKENS_OF else STRONG
    if last == "signature":
        return NO if before in _SIGNATURES_OF else STRONG
    if last in ("pass", "pat"):
        return STRONG if before in _PASSES_OF or is_variable or (last == "pat" and before) else WEAK
    if last == "id" and before == "key" and len(words) > 2 and words[-3] in ("access", "api", "secret"):
        return STRONG
    return WEAK if _AMONG & set(words) else NO


_AMONG: Final = _listed("token tokens auth oauth key sig signature cookie sid csrf csrftoken xsrf nonce pat")


def _strength_of_key(owner: str, *, is_variable: bool) -> int:
    if owner in _KEYS_OF:
        return STRONG
    if owner in _KEYS_FOR:
        return NO
    return STRONG if is_variable and owner else WEAK


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name[-200:])]


# ------------------------------------------------------------------------------------------------ the values of secrets

_HARMLESS: Final = re.compile(
    r"|none|null|nil|true|false|yes|no|on|off|unset|missing|required|optional|default|auto|[0-9]|\*+|x{3,}|\.\.\."
    r"|<[^<>]*>|\$\{?[A-Z_][A-Z0-9_]*\}?|\$\([^()]*\)|.{0,8}\[redacted\].{0,8}",
    re.IGNORECASE,
)
"""Values that are no secret under any name: nothing, a switch, a placeholder, the name of a variable."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
_RUN: Final = re.compile(r"[A-Za-z0-9+/=~%]{12,}")
_HEX40: Final = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
_START: Final = r"(?<![A-Za-z0-9])"
_SHAPE: Final = re.compile(
    _START + r"(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct)-[\w\-.]{16,}|xox[a-z](?:\.xox[a-z])?-[\w\-]{10,}|xapp-[\w\-]{10,}"
    r"|sk-(?=[\w\-]{0,60}[0-9A-Z])[\w\-]{16,}|(?:sk|pk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[\w+/=]{16,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{12,}|AIza[\w\-]{30,}|ya29\.[\w\-]{16,}|GOCSPX-[\w\-]{16,}"
    r"|1//0[\w\-]{20,}|npm_[A-Za-z0-9]{16,}|pypi-[\w\-]{16,}|dckr_(?:pat|oat)_[\w\-]{16,}|dop_v1_[a-f0-9]{16,}"
    r"|nvapi-[\w\-]{16,}|wandb_v[0-9]_\w{16,}|local-[0-9a-f]{40}|dapi[a-f0-9]{32}|SG\.[\w\-]{16,}(?:\.[\w\-]+)?"
    r"|gsk_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{16,}|pplx-[A-Za-z0-9]{16,}|tskey-[\w\-]{16,}"
    r"|hv[sbr]\.[\w\-]{16,}|AGE-SECRET-KEY-1[0-9A-Z]{16,}|PMAK-[\w\-]{16,}|rubygems_[a-f0-9]{16,}|gl(?:sa|c)_[\w=]{16,}"
    r"|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}|lin_api_\w{16,}|ntn_[0-9]{11}\w+|secret_[A-Za-z0-9]{40,}|figd_[\w\-]{16,}"
    r"|sntry[su]_[\w+/=\-]{16,}|dp\.(?:pt|st|ct|sa)\.\w{16,}|ATATT3[\w\-=]{16,}|key-[0-9a-f]{32}|[0-9]{8,10}:AA[\w\-]{30,}"
    r"|eyJ[\w\-+/=]{14,}(?:\.[\w\-+/=]*){0,4}"
    # the same in base64: of hf_, ghp_, github_pat_, glpat-, AKIA, sk-proj, xoxb-, npm_, pypi-, Bearer, -----BEGIN
    r"|(?:aGZf|Z2hwX|Z2l0aHViX3BhdF|Z2xwYXQt|QUtJQ|c2stcHJva|eG94Y|bnBtX|cHlwaS|QmVhcmVyI|LS0tLS1CRUdJTi)[\w+/\-]{12,}={0,2}"
    r")"
    r"|[\w.~\-]{3}[0-9]Q~[\w.~\-]{31,34}"
)
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[0-9]")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:[^\n]*")
_SCHEME: Final = re.compile(r"(?<![A-Za-z])(bearer|basic)(\s{1,8}|%20|\+)([A-Za-z0-9+/=_\-.~]{6,})", re.IGNORECASE)
_NOT_CREDENTIALS: Final = _listed("token tokens authentication authorization scheme header headers")


def _is_harmless(value: str) -> bool:
    return len(value) <= _LONGEST_HARMLESS and _HARMLESS.fullmatch(value.strip()) is not None


def _is_random(value: str) -> bool:
    """Tell a value that looks drawn by lot: a long run of letters and digits, or of letters of both cases."""
    text = value[:200].strip()
    if text.startswith(("/", "./", "../", "~/")) or "://" in text or _UUID.fullmatch(text) is not None:
        return False
    return any(_is_random_run(run) for run in _RUN.findall(text))


def _is_random_run(run: str) -> bool:
    if _LETTER.search(run) is None:
        return False
    return _DIGIT.search(run) is not None or (len(run) >= 20 and not run.islower() and not run.isupper())


def _is_secret(value: str, strength: int) -> bool:
    if strength == STRONG:
        return not _is_harmless(value)
    return strength == WEAK and _is_random(value)


# ------------------------------------------------------------------------------------------------------------- in texts

_STEMS_OF_TEXT: Final = _in_order(
    "passw passphrase passcode pw secret token cred auth key cookie sess sig pass pat dsn webhook jwt otp mfa totp sas"
    " bearer basic sid csrf xsrf nonce access conn :/ -----begin login mysql mariadb -u"
)
"""What any text must hold, in lower case, that a name, a URL or a header in it is looked for."""
_MARKS: Final = _in_order(
    "hf_ api_org_ ghp_ gho_ ghs_ ghu_ ghr_ github_pat_ glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glimt-"
    " glagent- glffct- xox xapp- sk- sk_ pk_ rk_ whsec_ AKIA ASIA ABIA ACCA AGPA AIDA AROA ANPA AIza ya29. GOCSPX-"
    " 1//0 npm_ pypi- dckr_ dop_v1_ nvapi- wandb_v local- dapi SG. gsk_ r8_ xai- pplx- tskey- hvs. hvb. hvr."
    " AGE-SECRET-KEY-1 PMAK- rubygems_ glsa_ glc_ shpat_ shpca_ shppa_ shpss_ lin_api_ ntn_ secret_ figd_ sntrys_"
    " sntryu_ dp. ATATT3 key- :AA eyJ aGZf Z2hwX Z2l0aHViX3BhdF Z2xwYXQt QUtJQ c2stcHJva eG94Y bnBtX cHlwaS"
    " QmVhcmVyI LS0tLS1CRUdJTi Q~ -----BEGIN PuTTY"
)
"""What any text must hold that a token is looked for by its shape."""
_SEPARATED: Final = re.compile(
    r"=|(?<!:):(?!:)|:/|(?<![\w.])--?[A-Za-z]|bearer|basic|\]|\s\S{1,200}\s{1,8}passw", re.IGNORECASE
)
"""What stands between a name and its value, or makes a value known without a name."""
_PAIR: Final = re.compile(
    r"(?<![\w.\-])([\w.\-]+|(?:api|access|secret|private|account|session)[ ](?:key|token|secret|id))"
    r"""((?:\\*["'\]]){0,3}\s{0,4}(?:=>|:=|==?|:)(?!:)\s{0,4})""",
    re.IGNORECASE,
)
_FLAG: Final = re.compile(r"(?<![\w.\-])(--?[A-Za-z][\w.\-]*)(\s{1,8})(?=[^\s\-])")
_OPENING: Final = re.compile(r"""[bBrRuUfF]{0,2}(\\*)(["'`])""")
_PIECE: Final = re.compile(r"""[^\s"'`,;&|]+""")
_GAP: Final = re.compile(r"[,;&|]+")
_NEXT_KEY: Final = re.compile(r"""\s{0,4}["'\\]{0,2}[\w.\-]{1,64}["'\\]{0,3}\s{0,2}[=:]""")
_SCHEME_WORDS: Final = re.compile(
    r"(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)\s{1,4}(?=\S)", re.IGNORECASE
)
_WHOLE_LINE: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-authorization"})
_CLOSERS: Final = ")]}>.,;:"
_URL: Final = re.compile(r"""(?<![\w+.\-])[A-Za-z][\w+.\-]*://[^\s"'<>`]+""")
_COLLAPSED: Final = re.compile(
    r"(?<![\w+.\-])([A-Za-z][\w+.\-]+:/)[^\s/@:\"'<>`]+:[^\s/@\"'<>`]+@"
)  # pathlib makes one slash of two
_NETRC: Final = re.compile(r"(\b(?:login|account|user)\s{1,8}\S{1,200}\s{1,8}passw(?:or)?d\s{1,8})(\S+)", re.IGNORECASE)
_USER: Final = re.compile(r"""(?<![\w\-])((?:-u|-U|--user|--proxy-user)[\s=]{1,4}["']?[^\s:"']{1,200}:)([^\s"'/]+)""")
_MYSQL: Final = re.compile(r"\b(mysql\w*|mariadb\w*|sshpass)\b")
_SHORT: Final = re.compile(r"""((?<!\S)-p)(\s*)([^\s"'\-][^\s"']*|"[^"]*"|'[^']*')""")


def redacted_text(text: str) -> str:
    """Give a text (a name, a message, a line of a log) with every secret in it replaced, the rest as it was."""
    if len(text) > _LONGEST:
        return text if not is_suspect(text) else REDACTED
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        structured = _json_cleaned(text, 0)
        if structured is not None:
            return structured
    return _text_cleaned(text)


def redacted_cell(name: str, text: str) -> str:
    """Give a text that stands under a name, as a cell does under its heading, with every secret in it replaced."""
    return REDACTED if _is_secret(text, _strength(name)) else redacted_text(text)


def is_suspect(text: str) -> bool:
    """Tell a text that may hold a secret, quickly: one that is not suspect is sure to hold none."""
    return _is_suspect(text, _STEMS_OF_TEXT, _MARKS)


def _is_suspect(text: str, stems: Sequence[str], marks: Sequence[str]) -> bool:
    lower = text.lower()
    if any(stem in lower for stem in stems) and _SEPARATED.search(text) is not None:
        return True
    return any(mark in text for mark in marks) or _is_disguised(text)


def redacted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Give names (each once in a trace) without the secrets in them; all are looked at together first."""
    given = tuple(names)
    whole = "\n".join(given)
    lower = whole.lower()
    stems = [stem for stem in _STEMS_OF_TEXT if stem in lower]
    marks = [mark for mark in _MARKS if mark in whole]
    if not stems and not marks and not _is_disguised(whole):
        return given
    left = _SEARCHED
    cleaned = []
    for name in given:
        if not _is_suspect(name, stems, marks):
            cleaned.append(name)
            continue
        left -= len(name)
        cleaned.append(redacted_text(name) if left >= 0 else REDACTED)
    return tuple(cleaned)


_DISGUISE: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|[\u200b-\u200f\u2060\ufeff\uff01-\uff5e]")
"""Percent-encoding, JSON's escapes, characters without width, and the wide forms of ASCII."""
_NO_WIDTH: Final = re.compile("[\u200b-\u200f\u2060\ufeff]")
_ESCAPE: Final = re.compile(r"\\u00([0-9A-Fa-f]{2})")


def _text_cleaned(text: str) -> str:
    clean = _plain_text_cleaned(text)
    if clean == text and _is_disguised(text):
        bare = _undisguised(text)
        return REDACTED if _plain_text_cleaned(bare) != bare else text
    return clean


def _is_disguised(text: str) -> bool:
    may_be = "%" in text or "\\u00" in text or not text.isascii()
    return may_be and _DISGUISE.search(text) is not None


def _undisguised(text: str) -> str:
    """Give a text as a reader takes it: decoded twice, as an address within an address is."""
    bare = _NO_WIDTH.sub("", normalize("NFKC", text))
    bare = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), bare)
    return unquote(unquote(bare))


def _plain_text_cleaned(text: str) -> str:
    if any(mark in text for mark in _MARKS):
        text = _SHAPE.sub(REDACTED, _without_pem(text))
    if not _is_suspect(text, _STEMS_OF_TEXT, ()):
        return text
    if "://" in text:
        text = _URL.sub(lambda found: shown_url(found[0]), text)
    text = _COLLAPSED.sub(rf"\1{REDACTED}@", text)
    text = _without_flags(_without_pairs(text))
    text = _SCHEME.sub(_without_scheme, text)
    text = _NETRC.sub(rf"\1{REDACTED}", text)
    text = _USER.sub(rf"\1{REDACTED}", text)
    return _SHORT.sub(rf"\1\2{REDACTED}", text) if _MYSQL.search(text) else text


def _without_pem(text: str) -> str:
    parts: list[str] = []
    place = 0
    while (begin := _PEM.search(text, place)) is not None:
        end = _PEM_END.search(text, begin.end())
        parts += [text[place : begin.start()], REDACTED]
        place = len(text) if end is None else end.end()
    return "".join(parts) + text[place:] if parts else text


def _without_scheme(found: re.Match[str]) -> str:
    scheme, gap, value = found[1], found[2], found[3]
    is_plain = value.lower() in _NOT_CREDENTIALS or (scheme.lower() == "basic" and not _is_encoded(value))
    return found[0] if is_plain else f"{scheme}{gap}{REDACTED}"


def _is_encoded(value: str) -> bool:
    """Tell base64 from a word: a digit, padding, or upper case inside."""
    return len(value) >= 8 and (value.endswith("=") or any(c.isdigit() or c.isupper() for c in value[1:]))


def _without_pairs(text: str) -> str:
    """Give the text without the values of `name=value`, `name: value`, `"name": "value"` where the name tells."""
    parts: list[str] = []
    place = done = 0
    while (found := _PAIR.search(text, place)) is not None:
        name, start = found[1], found.end()
        place = start
        strength = _strength(name)
        if strength == STRONG and name.lower() == "pass" and "=" not in found[2]:
            strength = WEAK  # forward pass: ...
        if strength == WEAK and name.lower() in ("sig", "pass") and "=" in found[2]:
            strength = STRONG
        if strength == NO:
            continue
        whole_line = name.lower() in _WHOLE_LINE
        outer = _quote_before(text, found.start())
        begin, end = _secret_span(text, start, strength, outer=outer, whole_line=whole_line)
        if begin == end:
            continue
        parts += [text[done:begin], REDACTED]
        place = done = end
    return "".join(parts) + text[done:] if parts else text


def _quote_before(text: str, place: int) -> str:
    """Give the quote that a name stands right behind, "" for none: its value ends where that closes."""
    return text[place - 1] if place and text[place - 1] in "\"'`" else ""


def _secret_span(text: str, start: int, strength: int, *, outer: str, whole_line: bool) -> tuple[int, int]:
    """Give where the secret at `start` begins and ends, (start, start) where the value is none.

    Its beginning tells; to the end of the value is gone only where it is taken out, so that all of it is gone once.
    """
    stop = min(start + _LOOKED_AT, len(text))
    begin, end = _value_span(text, start, stop, outer=outer, whole_line=whole_line)
    if begin == end or not _is_secret(text[begin:end], strength):
        return start, start
    return _value_span(text, start, len(text), outer=outer, whole_line=whole_line)


def _value_span(text: str, start: int, stop: int, *, outer: str, whole_line: bool) -> tuple[int, int]:
    """Give where the value at `start` begins and ends, `stop` at the latest; its quotes left out."""
    opening = _OPENING.match(text, start, stop)
    if opening is not None:
        return opening.end(), _closing(text, opening.end(), stop, opening[1] + opening[2])
    if text[start : start + 1] in ("[", "{", "(") and not text.startswith(REDACTED, start):
        return start + 1, _first_of("]})\n", text, start + 1, stop)
    if whole_line:
        return start, _first_of(f"{outer}\n" if outer else "\"'\n", text, start, stop)
    scheme = _SCHEME_WORDS.match(text, start, stop)
    end = _word_end(text, start if scheme is None else scheme.end(), stop)
    while end > start and text[end - 1] in _CLOSERS and not text.endswith(REDACTED, start, end):
        end -= 1
    return start, end


def _first_of(closers: str, text: str, start: int, stop: int) -> int:
    return min((end for end in (text.find(closer, start, stop) for closer in closers) if end >= 0), default=stop)


def _closing(text: str, start: int, stop: int, quote: str) -> int:
    """Give where a quoted value ends: at its quote, escaped as the opening one was, or at `stop`."""
    end = text.find(quote, start, stop)
    while end > start and len(quote) == 1 and _is_escaped(text, end):
        end = text.find(quote, end + 1, stop)
    return stop if end < 0 else end


def _is_escaped(text: str, place: int) -> bool:
    before = text[max(place - 8, 0) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _word_end(text: str, start: int, stop: int) -> int:
    """Give where an unquoted value ends: at a space, a quote, or a comma (or the like) with another name behind."""
    end = start
    while (piece := _PIECE.match(text, end, stop)) is not None:
        end = piece.end()
        gap = _GAP.match(text, end, stop)
        if gap is None or gap.end() == len(text) or _NEXT_KEY.match(text, gap.end()) or text[gap.end()].isspace():
            break
        end = gap.end()
    return end


def _without_flags(text: str) -> str:
    """Give the text without the values of `--api-key VALUE`."""
    parts: list[str] = []
    place = done = 0
    while (found := _FLAG.search(text, place)) is not None:
        place = found.end()
        strength = _strength(found[1])
        if strength == NO:
            continue
        begin, end = _secret_span(text, found.end(), strength, outer="", whole_line=False)
        if begin == end:
            continue
        parts += [text[done:begin], REDACTED]
        place = done = end
    return "".join(parts) + text[done:] if parts else text


# -------------------------------------------------------------------------------------------------------------- in URLs

_OPAQUE_PATHS: Final = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|"
    r"api\.telegram\.org/bot)[^\s?#]+",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(r"([?&;#])([^=&;#?]*)(=?)([^&;#]*)")
_SECRET_PARAMETERS: Final = _listed("sig code key k t hmac policy auth sid ticket jwt pass pwd")
_OPEN_PARAMETERS: Final = _listed(
    "versionid generation snapshot etag rev revision ref commit sha id uploadid uuid file path name prefix"
)
_INNER_USER: Final = re.compile(r"(://)[^/\s@:?#&]*:[^/\s@?#&]*@")
_ENCODED_SLASHES: Final = re.compile(r"%3A%2F%2F[^&\s]*%40", re.IGNORECASE)


def shown_url(url: str) -> str:
    """Give a URL as it may be shown: user and password, and secrets among the parameters and the fragment, taken out.

    What is no URL is given as it is.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = _without_user(rest, scheme.lower())
    cut = min((place for place in (rest.find("?"), rest.find("#")) if place >= 0), default=len(rest))
    path, parameters = rest[:cut], rest[cut:]
    path = _OPAQUE_PATHS.sub(rf"\1{REDACTED}", _INNER_USER.sub(rf"\1{REDACTED}@", path))
    parameters = _PARAMETER.sub(_without_parameter, parameters)
    return _SHAPE.sub(REDACTED, f"{scheme}{mark}{path}{parameters}")


def _without_user(rest: str, scheme: str) -> str:
    """Give what follows `scheme://` without its user; a user alone stays where it is no secret (`git@`)."""
    authority = re.match(r"[^/?#]*", rest)
    end = authority.end() if authority is not None else 0
    place = rest.rfind("@", 0, end)
    is_web = scheme.rpartition("::")[2] in ("http", "https")
    if place < 0 or not is_web:
        port = rest[:end].rpartition(":")[2] if place < 0 else ""
        has_password = ":" in rest[:end] and not port.isdigit()  # a password with a slash in it
        place = rest.rfind("@") if has_password else place
    if place < 0:
        return rest
    user = rest[:place]
    if not is_web and ":" not in user and not _is_random(user):
        return rest
    return f"{REDACTED}{rest[place:]}"


def _without_parameter(found: re.Match[str]) -> str:
    mark, name, equals, value = found[1], found[2], found[3], found[4]
    if not equals:
        return f"{mark}{REDACTED}" if _is_random(name) else found[0]
    plain = name.lower()
    is_telling = plain in _SECRET_PARAMETERS or _strength(name) == STRONG
    looks_so = plain not in _OPEN_PARAMETERS and (_is_random(value) or _ENCODED_SLASHES.search(value) is not None)
    is_secret = (is_telling and not _is_harmless(value)) or looks_so
    return f"{mark}{name}={REDACTED}" if is_secret else f"{mark}{name}={_INNER_USER.sub(REDACTED, value)}"


# ---------------------------------------------------------------------------------------------------------- in commands

_ASSIGNMENT: Final = re.compile(r"([-+~]*)([A-Za-z_][\w.\-/@\[\]]*)=(.*)", re.DOTALL)
_PROGRAM: Final = re.compile(r"(?:[^\s]*/)?([a-z][\w\-]*)")
_WITH_GLUED: Final = _listed("mysql mysqldump mysqladmin mariadb sshpass")
_WITH_SHORT: Final = {
    "sshpass": ("-p",), "docker": ("-p",), "podman": ("-p",), "az": ("-p",), "helm": ("-p",), "redis-cli": ("-a",),
    "ldapsearch": ("-w",), "curl": ("-b", "--cookie"),
}  # fmt: skip
_WITH_USER: Final = {
    "curl": ("-u", "--user", "-U", "--proxy-user"), "wget": ("--user",), "http": ("-a", "--auth"), "https": ("-a",),
    "smbclient": ("-U",),
}  # fmt: skip
_SHELLS: Final = _listed("sh bash dash zsh ksh")
_CODE_FLAG: Final = re.compile(r"-[a-z]*c")
_LOGINS: Final = frozenset({"wandb", "neptune", "comet"})
_PIECES_OF_SHELL: Final = re.compile(
    r"""(\s+)|([;&|<>()]+)|("(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\;&|<>()]+|.)""", re.DOTALL
)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
_QUOTED: Final = re.compile(r"""(?s)"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)""")
_ESCAPED: Final = re.compile(r"""(?s)\\([$`"\\\n])""")


def redacted_command(words: Sequence[str]) -> list[str]:
    """Give the words of a command with the secrets in them replaced: `--api-key X`, `HF_TOKEN=X`, `curl -u me:X`."""
    out: list[str] = []
    programs: set[str] = set()
    awaited = NO
    has_user = is_login = False
    is_code = False
    for word in words:
        is_flag = word.startswith("-")
        if is_code:
            out.append(redacted_line(word))
        elif awaited and not is_flag:
            out.append(REDACTED if _is_secret(word, awaited) else word)
        elif has_user:
            user, mark, _ = word.partition(":" if ":" in word else "%")
            out.append(f"{user}{mark}{REDACTED}" if mark else word)
        elif is_login and not is_flag and len(word) >= 16:
            out.append(REDACTED)
        else:
            out.append(word if _is_commit(word, out, programs) else _word_cleaned(word, programs))
        named = _PROGRAM.fullmatch(word)
        is_login = named is not None and word == "login" and bool(programs & _LOGINS)
        if named is not None and not awaited:
            programs.add(named[1])
        is_code = bool(programs & _SHELLS) and _CODE_FLAG.fullmatch(word) is not None
        has_user = any(word in _WITH_USER.get(program, ()) for program in programs)
        is_short = any(word in _WITH_SHORT.get(program, ()) for program in programs)
        awaited = STRONG if is_short else _strength(word) if is_flag and "=" not in word else NO
    return out


def _is_commit(word: str, before: Sequence[str], programs: set[str]) -> bool:
    if _HEX40.fullmatch(word) is None:
        return False
    return "git" in programs or bool(_OF_CONTENT & set(_words(before[-1] if before else "")))


def _word_cleaned(word: str, programs: set[str]) -> str:
    if word.startswith("-p") and len(word) > 2 and programs & _WITH_GLUED:
        return f"-p{REDACTED}"
    if _HEX40.fullmatch(word) is not None:  # a key of wandb's
        return REDACTED
    pair = _ASSIGNMENT.fullmatch(word)
    if pair is None:
        return redacted_text(word)
    dashes, name, value = pair[1], pair[2], pair[3]
    if _is_secret(value, _strength(name)):
        return f"{dashes}{name}={REDACTED}"
    return f"{dashes}{name}={redacted_text(value)}"


def redacted_line(text: str) -> str:
    """Give a recorded command with the secrets in it replaced, every other character as it was."""
    if len(text) > _LONGEST:
        return REDACTED if is_suspect(text) else text
    spans = list(_shell_words(text))
    before = [_unquoted(text[start:end]) for start, end in spans]
    after = redacted_command(before)
    parts: list[str] = []
    place = 0
    for (start, end), old, new in zip(spans, before, after):  # noqa: B905 - Python 3.9
        if new != old:
            parts += [text[place:start], _quoted(new)]
            place = end
    return _text_cleaned("".join(parts) + text[place:])


def _shell_words(text: str) -> Iterator[tuple[int, int]]:
    """Give where the words of a command begin and end, quotes with them."""
    start = -1
    for found in _PIECES_OF_SHELL.finditer(text):
        is_part = found[3] is not None
        if is_part and start < 0:
            start = found.start()
        elif not is_part and start >= 0:
            yield start, found.start()
            start = -1
    if start >= 0:
        yield start, len(text)


def _quoted(word: str) -> str:
    """Quote a word as a shell takes it; an assignment before a command is none if its name is quoted."""
    variable = _VARIABLE.match(word)
    return shlex.quote(word) if variable is None else variable[0] + shlex.quote(word[variable.end() :])


def _unquoted(word: str) -> str:
    return _QUOTED.sub(_inside, word) if _QUOTED.search(word) is not None else word


def _inside(found: re.Match[str]) -> str:
    doubly, singly, escaped = found.groups()
    return _ESCAPED.sub(r"\1", doubly) if doubly is not None else singly if singly is not None else escaped


# ------------------------------------------------------------------------------------------------------- in JSON values

_NAME_KEYS: Final = ("name", "key", "variable", "var", "env", "header", "option", "flag", "k")
_VALUE_KEYS: Final = ("value", "val", "v", "content", "data")


def redacted(value: Any, key: str = "") -> tuple[Any, int]:
    """Give a copy of a JSON value without secrets, and how many were taken out.

    An environment is taken out whole: it is never needed, and a pattern cannot know every name. So is a string with a
    secret in it, but a command and JSON, which go without the secret alone.
    """
    cleaner = _Cleaner()
    return cleaner.cleaned(value, key, 0), cleaner.n_taken


class _Cleaner:
    """One value under way: how many secrets were taken out, and how many characters may still be searched."""

    def __init__(self) -> None:
        self.n_taken = 0
        self._n_left = _SEARCHED

    def cleaned(self, value: Any, key: str, depth: int) -> Any:
        """Give the value that stands under `key`, cleaned."""
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return value
        is_container = isinstance(value, (dict, list, tuple))
        if depth > _DEEPEST or _is_environment(value, key) or (is_container and _strength(key) == STRONG):
            return self._taken()
        if isinstance(value, dict):
            return self._dict(value, depth)
        if isinstance(value, (list, tuple)):
            return self._list(value, key, depth)
        if isinstance(value, str):
            return self._string(value, key, depth)
        return self._taken() if _strength(key) == STRONG and not _is_harmless(str(value)) else value

    def _taken(self) -> str:
        self.n_taken += 1
        return REDACTED

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        names = {str(name).lower(): name for name in value}
        told = next((names[name] for name in _NAME_KEYS if isinstance(value.get(names.get(name)), str)), None)
        given = next((names[name] for name in _VALUE_KEYS if name in names), None)
        clean: dict[Any, Any] = {}
        for name, item in value.items():
            under = str(name)
            if told is not None and given is not None and name == given:
                under = value[told]  # {"name": "HF_TOKEN", "value": ...}
            elif told is not None and given is not None and name == told:
                under = ""
            clean[self._key(name)] = self.cleaned(item, under, depth + 1)
        return clean

    def _key(self, name: Any) -> Any:
        return self._text(name) if isinstance(name, str) else name

    def _list(self, value: Sequence[Any], key: str, depth: int) -> list[Any]:
        if len(value) == 2 and isinstance(value[0], str) and not value[0].startswith("-") and _strength(value[0]):
            return [value[0], self.cleaned(value[1], value[0], depth + 1)]  # ["HF_TOKEN", "..."]
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) == len(value) and sum(map(len, texts)) <= _LONGEST:
            return self._words(texts, key)
        clean: list[Any] = []
        awaited = NO
        for item in value:
            name = item if isinstance(item, str) and item.startswith("-") and "=" not in item else ""
            clean.append(self.cleaned(item, "token" if awaited == STRONG and not name else key, depth + 1))
            awaited = _strength(name) if name else NO
        return clean

    def _words(self, texts: Sequence[str], key: str) -> list[str]:
        """Give a list of strings, which may be the words of a command, lines of a file, or variables with values."""
        if _strength(key):
            return [self._string(text, key, _DEEPEST) for text in texts]
        whole = "\n".join(texts)
        if (begin := _PEM.search(whole)) is not None and "\n" in whole[begin.start() :]:
            return [*(self._taken() for _ in texts)]
        clean = redacted_command(texts)
        self._n_left -= len(whole)
        self.n_taken += sum(new != old for new, old in zip(clean, texts))  # noqa: B905 - Python 3.9
        return clean

    def _string(self, value: str, key: str, depth: int) -> str:
        if _is_secret(value, _strength(key)):
            return self._taken()
        words = _words(key)
        if _HEX40.fullmatch(value) is not None and not _OF_CONTENT & set(words):
            return self._taken()
        is_command = bool(words) and words[-1] in _COMMANDS
        if not is_command and not is_suspect(value):
            return value
        self._n_left -= len(value)
        if self._n_left < 0 or len(value) > _LONGEST:
            return self._taken()
        if value[:1] in ("{", "["):
            inner = _json_value(value)
            if inner is not None:
                before = self.n_taken
                clean = self.cleaned(inner, "", depth + 1)
                return json.dumps(clean) if self.n_taken > before else value
        if is_command:
            line = redacted_line(value)
            self.n_taken += line != value
            return line
        return value if _text_cleaned(value) == value else self._taken()

    def _text(self, value: str) -> str:
        clean = redacted_text(value) if is_suspect(value) else value
        self.n_taken += clean != value
        return clean


def _is_environment(value: Any, key: str) -> bool:
    if _ENVIRONMENT.fullmatch(key) is not None:
        return True
    is_whole = isinstance(value, (dict, list, tuple)) or (isinstance(value, str) and "=" in value)
    return is_whole and len(key) <= 200 and _OF_ENVIRONMENT.fullmatch(key) is not None


def _json_value(text: str) -> Any:
    """Give the container that a text writes in JSON, None if it writes none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _json_cleaned(text: str, depth: int) -> str | None:
    """Give JSON without secrets, None for what is no JSON; as it was where it held none."""
    value = _json_value(text)
    if value is None:
        return None
    cleaner = _Cleaner()
    clean = cleaner.cleaned(value, "", depth)
    return json.dumps(clean) if cleaner.n_taken else text

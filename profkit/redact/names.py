"""What a name says of its value: whether `HF_TOKEN` names a secret, and `max_tokens`, `tokenizer` and `author` do not.

Names are read word by word. A name that is often something else (`key`, `token_id`) needs a value that looks random.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from .later import later

NO, WEAK, STRONG = 0, 1, 2
"""What a name says of its value: nothing; a secret if it looks random; a secret."""


def listed(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())


_WORD: Final = later(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_STEMS: Final = ("passw", "passphrase", "passcode", "secret", "credential", "apikey", "accesskey", "privatekey")
_LAST_WORDS: Final = listed(
    "auth oauth authorization pw pwd sshpass cookie cookies bearer jwt sas webhook webhooks dsn cred creds otp mfa totp"
    " sessionid sessid phpsessid jsessionid authkey"
)
_LAST_PAIRS: Final = frozenset(
    {
        ("session", "id"), ("connection", "string"), ("conn", "string"), ("conn", "str"), ("connection", "str"),
        ("webhook", "url"), ("key", "pair"), ("connect", "sid"), ("access", "id"),
    }
)  # fmt: skip
_KEYS_OF: Final = listed(
    "access account admin anthropic api app application auth aws azure boto client cohere comet consumer db deploy"
    " encryption fernet gcp gemini github gitlab google hf hmac huggingface id jwt kaggle license licence master mlflow"
    " mistral neptune nvidia ngc openai pgp private project replicate root rsa s3 sas secret sendgrid service session"
    " shared signing slack ssh ssl storage stripe subscription swift tls together twilio user wandb write"
)
"""What stands before `key` where that is a secret; before `key_id` it may be a public half, which goes as well."""
_KEYS_FOR: Final = listed(
    "sort cache primary foreign partition group hash dict map index join order data label image text input output"
    " target column state module param metric monitor dispatch by kv query attn lookup registry batch feature sample"
    " prompt response answer question caption audio video messages content reward loss stop unique row object bucket"
    " compile compilation graph kernel guard num n"
)
"""What stands before `key` where that names a place in a table."""
_TOKENS_OF: Final = listed(
    "pad eos bos mask unk sep cls image special stop start end per num n max min new first last next prev previous"
    " total context vision video audio im boi eoi bot eot sot decoder encoder forced suppress sub byte visual register"
    " each every separator pooling class patch text extra added draft tool think by cost word"
)
"""What stands before `token` where that is a piece of text."""
_SIGNATURES_OF: Final = listed("op kernel function func method type call graph schema node input shape")
_PASSES_OF: Final = listed("db user smtp ftp mysql pg redis ssh ssl admin root login proxy http mail email")
_ABOUT: Final = listed(
    "file files filename path paths dir name names type types uri endpoint host port ttl expiry expiration expires"
    " provider method methods mode format version backend enabled required timeout policy scheme scope scopes"
    " algorithm alg class length size count len field column prefix suffix env var hint manager helper issuer audience"
    " py json yaml yml txt toml cpp cu cc h so"
)
"""Last words of names that tell about a secret, or of files."""
_HOLDERS: Final = listed("secret secrets credential credentials password passwords cookies")
OF_CONTENT: Final = listed("commit sha sha1 revision rev hash digest checksum git ref head etag fingerprint")
"""Words of names whose value tells what something holds: 40 hexadecimal digits are no key there."""
_AMONG: Final = listed("token tokens auth oauth key sig signature cookie sid csrf csrftoken xsrf nonce pat")
"""Words that make a name suspect wherever they stand in it."""


def words_of(name: str) -> list[str]:
    """The words of a name in lower case, of the last 200 characters."""
    return [word.lower() for word in _WORD.findall(name[-200:])]


@lru_cache(maxsize=4096)
def strength_of(name: str) -> int:
    """What a name says of its value: NO, WEAK or STRONG. Of a dotted name the last part counts most."""
    *outer, own = name.strip("-+~.")[-200:].split(".")
    words = words_of(own)
    while words and words[-1].isdigit():  # TOKEN_2
        words.pop()
    if not words:
        return NO
    found = _strength_of_words(words, is_variable=own.isupper())
    if found == NO and any(_HOLDERS.intersection(words_of(part)) for part in outer):
        return WEAK if words[-1] in _ABOUT else STRONG
    return found


def _strength_of_words(words: Sequence[str], *, is_variable: bool) -> int:
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
    return NO if _AMONG.isdisjoint(words) else WEAK


def _strength_of_key(owner: str, *, is_variable: bool) -> int:
    if owner in _KEYS_OF:
        return STRONG
    if owner in _KEYS_FOR:
        return NO
    return STRONG if is_variable and owner else WEAK

"""URLs, without the user and password, and without the secrets among their parameters."""

from __future__ import annotations

import re
from typing import Final

from .later import later
from .names import STRONG, listed, strength_of
from .tokens import TOKEN
from .values import REDACTED, is_harmless, is_random

_URL: Final = later(r"""(?<![\w+.\-])[A-Za-z][\w+.\-]*://[^\s"'<>`]+""")
_COLLAPSED: Final = later(
    r"(?<![\w+.\-])([A-Za-z][\w+.\-]+:/)[^\s/@:\"'<>`]+:[^\s/@\"'<>`]+@"
)  # pathlib makes one slash of two
_OPAQUE_PATHS: Final = later(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|"
    r"api\.telegram\.org/bot)[^\s?#]+",
    re.IGNORECASE,
)
_PARAMETER: Final = later(r"([?&;#])([^=&;#?]*)(=?)([^&;#]*)")
_SECRET_PARAMETERS: Final = listed("sig code key k t hmac policy auth sid ticket jwt pass pwd")
_OPEN_PARAMETERS: Final = listed(
    "versionid generation snapshot etag rev revision ref commit sha id uploadid uuid file path name prefix"
)
_INNER_USER: Final = later(r"(://)[^/\s@:?#&]*:[^/\s@?#&]*@")
_ENCODED_SLASHES: Final = later(r"%3A%2F%2F[^&\s]*%40", re.IGNORECASE)


def without_urls_secrets(text: str) -> str:
    """A text with every URL in it as it may be shown."""
    if "://" in text:
        text = _URL.sub(lambda found: shown_url(found[0]), text)
    return _COLLAPSED.sub(rf"\1{REDACTED}@", text)


def shown_url(url: str) -> str:
    """A URL as it may be shown: user and password, and secrets among the parameters and the fragment, taken out.

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
    return TOKEN.sub(REDACTED, f"{scheme}{mark}{path}{parameters}")


def _without_user(rest: str, scheme: str) -> str:
    """What follows `scheme://` without its user; a user alone stays where it is no secret (`git@`)."""
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
    if not is_web and ":" not in user and not is_random(user):
        return rest
    return f"{REDACTED}{rest[place:]}"


def _without_parameter(found: re.Match[str]) -> str:
    mark, name, equals, value = found[1], found[2], found[3], found[4]
    if not equals:
        return f"{mark}{REDACTED}" if is_random(name) else found[0]
    plain = name.lower()
    is_telling = plain in _SECRET_PARAMETERS or strength_of(name) == STRONG
    looks_so = plain not in _OPEN_PARAMETERS and (is_random(value) or _ENCODED_SLASHES.search(value) is not None)
    is_secret = (is_telling and not is_harmless(value)) or looks_so
    return f"{mark}{name}={REDACTED}" if is_secret else f"{mark}{name}={_INNER_USER.sub(REDACTED, value)}"

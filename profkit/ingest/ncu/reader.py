"""What Nsight Compute leaves, to profiles: `.ncu-rep`, its CSV pages (details, raw, summaries) and its text page."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit import files
from profkit.errors import TraceFormatError, TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.bytes.bytesource import first_plain_bytes, read_chunks, unreadable
from profkit.ingest.bytes.foreign import foreign
from profkit.ingest.bytes.spool import spooled
from profkit.ingest.ncu.csv_page import is_header, read_csv
from profkit.ingest.ncu.rep_file import read_rep
from profkit.ingest.ncu.source import MAGIC
from profkit.ingest.ncu.text_page import read_text
from profkit.model.kernel import KernelProfile
from profkit.model.names import function_name
from profkit.redact import redacted_text
from profkit.shell import quoted_path

SUFFIXES: Final = (".ncu-rep", ".ncu-repz", ".csv", ".txt", ".log")
_REPORT_SUFFIXES: Final = (".ncu-rep", ".ncu-repz")
_CHUNK_BYTES: Final = 2**20
_MAX_LINE: Final = 4 * 2**20  # chosen: a raw page's header of 2000 metrics takes 0.1 MB
_HOW: Final = "give an .ncu-rep, or the output of ncu --csv (--page details or raw) or of plain ncu"


class ReadProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles of one file, in its order, and what was not as it should be."""

    profiles: tuple[KernelProfile, ...]
    warnings: tuple[str, ...] = ()


def find_ncu_sources(paths: Iterable[str]) -> list[str]:
    """The files behind paths; of a folder its reports, or its CSV and text pages if it has none.

    Raises TraceNotFoundError for a folder without any.
    """
    sources: list[str] = []
    for text in paths:
        path = Path(text)
        sources += _in_folder(path) if text != "-" and path.is_dir() else [text]
    return list(dict.fromkeys(sources))


def _in_folder(folder: Path) -> list[str]:
    found = sorted(path for path in folder.rglob("*") if files.is_plain_file(path) and path.suffix in SUFFIXES)
    reports = [path for path in found if path.suffix in _REPORT_SUFFIXES]
    if not found:
        raise TraceNotFoundError(f"{folder} holds no files of ncu ({', '.join(SUFFIXES)})", hint=_HOW)
    return [str(path) for path in reports or found]


def read_profiles(source: str) -> ReadProfiles:
    """The profiles of a file ("-" is standard input), told by its content, never by its name; no secret in them.

    Raises TraceNotFoundError, TraceFormatError for what ncu has not written, UnsupportedTraceError for a page without
    kernels, MissingCapabilityError for an .ncu-rep without its reader.
    """
    read = _read(source)
    return replace(read, profiles=tuple(map(_without_secrets, read.profiles)))


def _without_secrets(profile: KernelProfile) -> KernelProfile:
    name = redacted_text(profile.name)
    return replace(
        profile,
        name=name,
        function=profile.function if name == profile.name else function_name(name),
        device_name=redacted_text(profile.device_name),
        rules=tuple(replace(rule, message=redacted_text(rule.message)) for rule in profile.rules),
    )


@contextmanager
def _spooled(source: str) -> Iterator[Path]:
    """The file behind a source; what is missing is said with the files that ncu writes, not those of a profiler."""
    with ExitStack() as stack:
        try:
            path = stack.enter_context(spooled(source, _refuse_no_page))
        except TraceNotFoundError as error:
            raise TraceNotFoundError(str(error), hint=_HOW) from None
        yield path


def _read(source: str) -> ReadProfiles:
    with _spooled(source) as path:
        head = _head(path, source)
        if head.startswith(MAGIC) or Path(source).suffix in _REPORT_SUFFIXES:
            if not head.startswith((MAGIC, b"\x28\xb5\x2f\xfd")):
                raise TraceFormatError(f"{source} has the name of an ncu report, but is not one", hint=_HOW)
            return ReadProfiles(profiles=_refuse_none(read_rep(path, source), source))
        _refuse_others(head, source)
        if _is_csv(path, source):
            page = read_csv(_lines(path, source), source)
            told = f"{source}: {page.n_skipped} line{'s' * (page.n_skipped != 1)} among the rows belong to no launch"
            return ReadProfiles(
                profiles=_refuse_none(page.profiles, source), warnings=(told,) if page.n_skipped else ()
            )
        profiles = read_text(_lines(path, source), source)
    if not profiles:
        raise _refusal(path, source, head)
    return ReadProfiles(profiles=tuple(profiles))


def _refuse_others(head: bytes, source: str) -> None:
    """Raise TraceFormatError for a file of another tool, named as what it is."""
    known = foreign(head, source)
    if known is not None:
        raise TraceFormatError(f"{source} is not an output of ncu: it is {known.what}", hint=_HOW)
    if first_plain_bytes(head).lstrip()[:1] in {b"{", b"["} and Path(source).name.endswith((".json", ".json.gz")):
        raise TraceFormatError(
            f"{source} is not an output of ncu: it is JSON", hint=f"a trace? profkit triage {quoted_path(source)}"
        )


def _head(path: Path, source: str) -> bytes:
    try:
        return files.read_head(path, 4096)
    except OSError as error:
        raise unreadable(source, error) from None


def _refuse_no_page(head: bytes, source: str) -> None:
    """Raise TraceFormatError for the first megabyte of a stream that is neither a report nor text."""
    if not head.startswith(MAGIC):
        _decoder_for(first_plain_bytes(head), source)


def _is_csv(path: Path, source: str) -> bool:
    return any(is_header(line) for line in _lines(path, source))


def _refuse_none(profiles: list[KernelProfile], source: str) -> tuple[KernelProfile, ...]:
    if not profiles:
        hint = "the filter matched no launch, or collection failed: look for ==WARNING== and ==ERROR== in ncu's output"
        raise UnsupportedTraceError(f"{source} holds no profiled kernel", hint=hint)
    return tuple(profiles)


def _refusal(path: Path, source: str, head: bytes) -> TraceFormatError | UnsupportedTraceError:
    if "ERR_NVGPUCTRPERM" in "".join(line for line in _lines(path, source) if "ERR_NVGPU" in line):
        return UnsupportedTraceError(
            f"{source}: ncu was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM)",
            hint="run it as root, in docker with --cap-add=SYS_ADMIN, or open the counters: profkit doctor",
        )
    if b"==PROF==" in head or b"==WARNING== No kernels" in head:
        return UnsupportedTraceError(
            f"{source}: ncu ran and printed no kernel",
            hint="with -o, ncu prints nothing: give the .ncu-rep that it wrote",
        )
    return TraceFormatError(f"{source} is not an output of ncu", hint=_HOW)


def _lines(path: Path, source: str) -> Iterator[str]:
    """The lines of a text file without their ends; what is no text, or one endless line, is refused."""
    rest = ""
    decoder: codecs.IncrementalDecoder | None = None
    for chunk in read_chunks(path, source=source, chunk_bytes=_CHUNK_BYTES):
        if decoder is None:
            decoder = _decoder_for(chunk, source)
        lines = (rest + decoder.decode(chunk)).split("\n")
        rest = lines.pop()
        if len(rest) > _MAX_LINE:
            raise TraceFormatError(f"{source} is not an output of ncu: it has a line of over {_MAX_LINE >> 20} MiB")
        for line in lines:
            yield line.rstrip("\r")
    if rest:
        yield rest.rstrip("\r")


def _decoder_for(head: bytes, source: str) -> codecs.IncrementalDecoder:
    is_wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # what PowerShell's > writes
    name = "utf-16" if is_wide else "utf-8-sig"
    if b"\0" in head and not is_wide:
        raise TraceFormatError(f"{source} is neither text nor an ncu report", hint=_HOW)
    return codecs.getincrementaldecoder(name)(errors="replace")

"""The one place where a path is opened: what is read is a file with an end, what is written is whole or not there.

In come paths, from a folder of traces that anybody may have filled or from the temporary folder, which is shared.
Out come open files, bytes and folders, or an OSError whose `strerror` says in plain words what is wrong.
Begin with `reading`, which uses all of `kinds`; then `writing`, `folders`, `temporary`.

Standard library only, Python 3.9 syntax: `profkit.capture` loads this package by its path, in processes where profkit
is not installed. So its files import each other relatively, and nothing of profkit's besides.
"""

from .folders import private_folder, user_cache, user_data
from .kinds import (
    NotAFileError,
    confined_to,
    is_below,
    is_plain_file,
    kind_of,
    refuse_foreign,
    refuse_foreign_folder,
)
from .reading import TooLargeError, open_file, open_pipe, read_head, read_own, read_small, size_of
from .temporary import STALE_S, TEMPORARY, free_bytes, remove_stale, temporary_folder
from .writing import PART, open_to_append, replacing, write_if_absent, write_out, write_whole

__all__ = [
    "PART",
    "STALE_S",
    "TEMPORARY",
    "NotAFileError",
    "TooLargeError",
    "confined_to",
    "free_bytes",
    "is_below",
    "is_plain_file",
    "kind_of",
    "open_file",
    "open_pipe",
    "open_to_append",
    "private_folder",
    "read_head",
    "read_own",
    "read_small",
    "refuse_foreign",
    "refuse_foreign_folder",
    "remove_stale",
    "replacing",
    "size_of",
    "temporary_folder",
    "user_cache",
    "user_data",
    "write_if_absent",
    "write_out",
    "write_whole",
]

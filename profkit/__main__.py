"""`python -m profkit` is `profkit`: where the program starts."""

import os
import sys


def _leave_working_folder() -> None:
    """Take the working folder off the import path: it may be a stranger's, with a click.py in it.

    `python -m` puts it first. It stays where profkit itself lies in it, as in a checkout.
    """
    first = os.path.realpath(sys.path[0]) if sys.path else ""
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib is not loaded yet
    if first != home and first == os.path.realpath(os.curdir) and not sys.flags.safe_path:
        del sys.path[0]


if __name__ == "__main__":
    _leave_working_folder()

from profkit.allocator import collector_patient  # noqa: E402 - from where profkit lies, not from the working folder

collector_patient()  # before what makes most of what it would look at

from profkit.cli import main  # noqa: E402

if __name__ == "__main__":  # worker processes import this module too
    main()

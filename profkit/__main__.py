"""`python -m profkit` is `profkit`."""

from profkit.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()

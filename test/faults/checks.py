"""How the scripts of this folder say that something is not as promised, or cannot be tried here."""

import sys


def check(condition, message):
    if not condition:
        raise SystemExit(message)


def skip(why):
    """The exit code that CTest counts as skipped."""
    print(f"skipped: {why}")
    sys.exit(77)

"""The command line: ``graphattn show | facts | explain | audit | verify | bench | doctor``, on a pattern or a file.

Nothing heavy is imported at the top of a file here: ``graphattn --help`` should not wait for what it does not use.
"""

import sys

from ..errors import not_installed


def main() -> None:
    """The entry point of the ``graphattn`` script; it exits with the status of the command.

    0 is success, 1 a verification or self-check that failed, 2 an error in what was asked, 130 an interruption.
    """
    try:
        from .bench import app  # the last command to be added to it
    except ModuleNotFoundError as error:
        sys.exit(_missing(error))
    app()


def _missing(error: ModuleNotFoundError) -> int:
    """Say what to install for a command line."""
    found = not_installed(error)
    if found is None:
        raise error
    print(f"error: {found}", file=sys.stderr)
    return 2

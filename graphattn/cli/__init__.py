"""The command line ``graphattn``: commands on a graph, on folders of shapes, and on their runs.

A graph is a name, an expression or a file. Nothing heavy is imported at the top of a file here:
``graphattn --help`` should not load what it does not use.
"""

import sys

from ..errors import not_installed


def main() -> None:
    """The entry point of the ``graphattn`` script and of ``python -m graphattn``.

    It exits with the status of the command; help and messages have ``graphattn`` for both.

    0 is success, 1 a verification or self-check that failed, 2 an error in what was asked, 130 an
    interruption.
    """
    try:
        from .app import app
    except ModuleNotFoundError as error:
        missing = not_installed(error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="graphattn")

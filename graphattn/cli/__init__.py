"""The command line: ``graphattn show | facts | explain | audit | verify | bench | doctor``, on a pattern or a file.

Nothing heavy is imported at the top of a file here: ``graphattn --help`` should not wait for what it does not use.
"""

from .app import app as app
from .bench import bench as bench


def main() -> None:
    """The entry point of the ``graphattn`` script; it exits with the status of the command.

    0 is success, 1 a verification or self-check that failed, 2 an error in what was asked, 130 an interruption.
    """
    app()

"""Click's group with this program's manners: every error is one line, or one JSON document, and an exit status."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from typer import Abort
from typer.core import TyperGroup

from .failure import INTERRUPTED, report
from .output import CLOSED


class Group(TyperGroup):
    """All commands."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit; every error becomes a line, or a JSON document, and a status."""
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        wrong: Exception | None = None
        status = 0
        try:
            status = super().main(words, prog_name, *rest, **extra) or 0
        except SystemExit:  # stdout has no reader: the only exit that click takes by itself here
            status = CLOSED
        except Exception as error:
            wrong = error
        if wrong is not None or status == INTERRUPTED:  # some versions of typer raise Abort, some return the status
            debug = os.environ.get("GRAPHATTN_DEBUG", "0") not in ("", "0") or "--debug" in words
            status = report(wrong or Abort(), as_json="--json" in words, debug=debug)
        sys.exit(status)

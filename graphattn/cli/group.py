"""Click's group and commands with this program's manners: its errors, its exit statuses, its help."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from typer import Abort
from typer.core import TyperCommand, TyperGroup

from .failure import INTERRUPTED, report
from .output import CLOSED, fitting

WORDS = "graphattn.words"  # where a context keeps what was typed


class PatternCommand(TyperCommand):
    """A command on WHAT; its help lists patterns and files, or tells of the one that was named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words, which the parser consumes before it comes to --help."""
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """WHAT comes first."""
        return ["WHAT", "[OPTIONS OF WHAT]", "[OPTIONS]"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help on the command, or on one pattern or kind of file."""
        from .help import contents, file_page, page
        from .names import ENDINGS
        from .what import pattern

        for word in ctx.meta[WORDS]:
            builder = pattern(word)
            if builder is not None:
                formatter.write(fitting(page(ctx.command_path, word, builder, formatter.width)))
                return
            if word in ENDINGS:
                formatter.write(fitting(file_page(ctx.command_path, word, formatter.width)))
                return
        super().format_help(ctx, formatter)
        formatter.write(fitting("\n" + contents(ctx.command_path, formatter.width)))


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
        except SystemExit:  # nobody reads any more: the only exit that click takes by itself here
            status = CLOSED
        except Exception as error:
            wrong = error
        if wrong is not None or status == INTERRUPTED:  # some versions of typer raise Abort, some return the status
            debug = os.environ.get("GRAPHATTN_DEBUG", "0") not in ("", "0") or "--debug" in words
            status = report(wrong or Abort(), words=words, as_json="--json" in words, debug=debug)
        sys.exit(status)

"""``graphattn gallery``: every named pattern as a thumbnail."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Debug
from .output import PICTURES, check_picture, one_line, say, step

PAGE = ".html"


def gallery(
    out: Annotated[
        str, typer.Option(metavar="FILE", help="A page (.html), or one picture (.png, .pdf or .svg).")
    ] = "gallery.html",
    debug: Debug = False,
) -> None:
    """Draw every named pattern of the literature.

    One page that needs no network: a thumbnail of each, with the line of code that builds it.
    """
    check_picture(out, (PAGE, *PICTURES))
    from ..convert.files._replace import save_page, save_picture
    from ..graphs import zoo
    from ..viz.gallery import gallery_page, gallery_sheet

    patterns = list(zoo().values())
    with step(f"drawing {len(patterns)} patterns"):
        made: Any = gallery_page(patterns) if Path(out).suffix.lower() == PAGE else gallery_sheet(patterns)
        save_page(out, made) if isinstance(made, str) else save_picture(out, made)
    say(f"{len(patterns)} patterns: {one_line(out)}")

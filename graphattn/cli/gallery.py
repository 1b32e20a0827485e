"""``graphattn gallery``: every named pattern as a thumbnail."""

from typing import Annotated

import typer

from .options import Debug
from .output import check_picture, one_line, say, step


def gallery(
    out: Annotated[str, typer.Option(metavar="FILE", help="A page (.html).")] = "gallery.html",
    debug: Debug = False,
) -> None:
    """Draw every named pattern of the literature.

    One page that needs no network: a thumbnail of each, with the line of code that builds it.
    """
    check_picture(out, (".html",))
    from ..convert.files._replace import save_page
    from ..graphs import zoo
    from ..viz.gallery import gallery_page

    patterns = list(zoo().values())
    with step(f"drawing {len(patterns)} patterns"):
        save_page(out, gallery_page(patterns))
    say(f"{len(patterns)} patterns: {one_line(out)}")

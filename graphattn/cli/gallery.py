"""``graphattn gallery``: every named pattern as a thumbnail."""

from pathlib import Path
from typing import Any

from ..errors import OptionError
from .commands import check_picture
from .names import PICTURES
from .output import one_line, say, step

PAGE = ".html"


def gallery(out: str) -> None:
    """Write the page, or one sheet of thumbnails where ``out`` ends as a picture."""
    check_picture(out, (PAGE, *PICTURES))
    from ..graphs import zoo
    from ..viz.gallery import gallery_page, gallery_sheet

    patterns = list(zoo().values())
    with step(f"drawing {len(patterns)} patterns"):
        made: Any = gallery_page(patterns) if Path(out).suffix.lower() == PAGE else gallery_sheet(patterns)
        try:
            Path(out).write_text(made, encoding="utf-8") if isinstance(made, str) else made.savefig(out)
        except OSError as error:
            raise OptionError(f"--out: cannot write {out}: {error.strerror or error}") from error
    say(f"{len(patterns)} patterns: {one_line(out)}")

"""The gallery: every named pattern as a thumbnail, on one page that needs nothing else."""

import io
import re
from collections.abc import Iterable
from html import escape
from itertools import groupby

from ..graph.pictures.html import image, mask_shares, png
from ..graphs.catalogue import Named
from .style import png as figure_png
from .thumbnail import graph_of, thumbnail

_WIDTH, _HEIGHT = 1.7, 1.1  # of a drawing, inches
_DPI = 150
_MASK = 96  # pixels of the longer side of a mask
_STYLE = """body{font:14px/1.35 system-ui,sans-serif;color:#1f2933;margin:1.5rem auto;max-width:1180px;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;border-bottom:1px solid #c5cdd6;margin:1.6rem 0 .6rem}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(270px,1fr));gap:.8rem}
figure{margin:0;padding:.6rem;border:1px solid #e3e7ec;border-radius:6px}
.two{display:flex;gap:.5rem;align-items:center;height:112px}
.box{width:98px;display:flex;justify-content:center}
.mask{image-rendering:pixelated;border:1px solid #9aa5b1;background:#fff}
.drawn{width:160px;height:104px}
code{display:block;font-size:11px;background:#f4f6f8;padding:.25rem .4rem;margin-top:.3rem;overflow-wrap:anywhere}
small{color:#52606d}"""


def gallery_page(patterns: Iterable[Named]) -> str:
    """One HTML page without scripts or links: thumbnail, line and code of each pattern by family.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    parts = []
    families = groupby(patterns, lambda named: named.family)
    for family, members in families:
        cards = [card(named) for named in members]
        parts.append(
            f"<h2>{escape(family)} ({len(cards)})</h2>\n<main>\n" + "\n".join(cards) + "\n</main>"
        )
    intro = (
        "Left the mask: targets are rows, sources are columns, dark where the target reads the "
        "source. Right the graph where its nodes live, whole, or the sources of one or two marked "
        "targets. Arcs above a line read earlier nodes and below it later ones; of two rows the "
        "targets are above."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>graphattn: '
        "gallery</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>\n'
        f"<h1>Patterns of attention</h1><p>{intro}</p>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def card(named: Named) -> str:
    """A pattern as a figure in HTML: its pictures, name, paper, line and code."""
    if named.paper:
        paper = f" <small>{escape(named.paper)}</small>"
    else:
        paper = ""
    code = re.sub(r"[(\[,.]", r"\g<0><wbr>", escape(named.code))  # a line breaks behind these first
    return (
        f"<figure>{pictures(named)}<b>{escape(named.name)}</b>{paper}<br>{escape(named.line)}"
        f"<code>{code}</code></figure>"
    )


def pictures(
    named: Named, width: float = _WIDTH, height: float = _HEIGHT, mask: int = _MASK
) -> str:
    """The mask of a pattern and its drawing side by side in HTML.

    Args:
        named: The pattern.
        width: Of the drawing, in inches.
        height: Of the drawing, in inches.
        mask: Pixels of the longer side of the mask.
    """
    graph = graph_of(named)
    shares = png(mask_shares(graph.edges))
    # in the mask's proportions: a frame would read as empty rows
    sizes = (graph.num_targets, graph.num_sources)
    high, wide = (max(3, round(mask * size / max(*sizes, 1))) for size in sizes)
    style = f"width:{wide}px;height:{high}px"
    left = image(shares, "mask", class_="mask", style=style)
    right = image(_drawn(named, width, height), "drawing", class_="drawn")
    return f'<div class="two"><div class="box">{left}</div>{right}</div>'


def _drawn(named: Named, width: float, height: float) -> bytes:
    """The drawing as a PNG of few colours."""
    from PIL import Image  # comes with matplotlib

    small = io.BytesIO()
    figure = thumbnail(named, width, height)
    raw = Image.open(io.BytesIO(figure_png(figure, _DPI)))
    raw.convert("RGB").quantize(32).save(small, format="png", optimize=True)
    return small.getvalue()

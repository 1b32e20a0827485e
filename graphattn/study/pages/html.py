"""Pages of reports as HTML that needs nothing beside it: the figure stands in the page."""

import html
import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from ..page import Block, Figure, Page, Table
from .markdown import cell

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 72rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p, li { max-width: 46rem; overflow-wrap: break-word }
div { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  border-top: 2px solid #1f2933; border-bottom: 2px solid #1f2933 }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; min-width: 2.5rem }
td:first-child { min-width: 7rem }
@media (max-width: 600px) { table { width: max-content } td, th { max-width: 16rem } }
th { border-bottom: 1px solid #1f2933; font-weight: 600 }
img { width: 100%; display: block; margin: 1.2rem 0 }
"""
_TEXT = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def render(page: Page, figure: Path) -> str:
    """The whole page, with the figure, an SVG, if there is one."""
    body = [f"<h1>{html.escape(page.heading)}</h1>\n", _blocks(page.opening, figure)]
    for section in page.sections:
        body += [f"<h2>{html.escape(section.title)}</h2>\n", _blocks(section.blocks, figure)]
    head = (
        '<meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{html.escape(page.title)}</title>'
    )
    head = f"<head>{head}<style>{_STYLE}</style></head>"
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body>\n{"".join(body)}</body></html>\n'


def _blocks(blocks: Sequence[Block], figure: Path) -> str:
    parts: list[str] = []
    texts: list[str] = []  # texts beside each other are one: a list may go on, a link be defined
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        parts.append(_text(texts))
        texts = []
        if isinstance(block, Table):
            parts.append(_table(block))
        else:
            parts.append(_image(block, figure))
    return "".join([*parts, _text(texts)])


def _text(texts: list[str]) -> str:
    rendered = _TEXT.render(_in_italics("\n\n".join(texts)))
    return rendered.replace("<table>", "<div><table>").replace("</table>", "</table></div>")


def _in_italics(text: str) -> str:
    """Mathematics in italics."""
    return re.sub(r"(?<!\\)\$([^$`\n]+)\$", r"*\1*", text)


def _table(table: Table) -> str:
    head = _row(table.head, "th")
    rows = "\n".join(_row(row, "td") for row in table.rows)
    return f"<div><table>\n<thead>\n{head}\n</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n"


def _row(cells: list[str], tag: str) -> str:
    rendered = [_TEXT.renderInline(_in_italics(cell(text))) for text in cells]
    return "\n".join(["<tr>", *(f"<{tag}>{text}</{tag}>" for text in rendered), "</tr>"])


def _image(figure: Figure, path: Path) -> str:
    if not path.exists():
        return ""
    data = b64encode(path.read_bytes()).decode()
    caption = html.escape(figure.caption)
    return f'<img alt="{caption}" src="data:image/svg+xml;base64,{data}">\n'

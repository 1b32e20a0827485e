"""Pages of reports in Markdown, and names of users in it."""

import re
from collections.abc import Sequence
from typing import Any

from ..page import Block, Page, Table


def render(page: Page) -> str:
    """The whole page; figures are files beside it."""
    parts = [f"# {verbatim(page.heading)}", *_texts(page.opening)]
    for section in page.sections:
        parts += [f"## {section.title}", *_texts(section.blocks)]
    return "\n\n".join(parts)


def joined(blocks: Sequence[Block]) -> str:
    """Blocks one after another."""
    return "\n\n".join(_texts(blocks))


def _texts(blocks: Sequence[Block]) -> list[str]:
    texts = []
    for block in blocks:
        if isinstance(block, Table):
            texts.append(table(block))
        elif isinstance(block, str):
            texts.append(block)
    return texts


def table(content: Table) -> str:
    """A table, whose cells are one line each; bars and brackets in them are themselves."""
    lines = [f"| {' | '.join(content.head)} |", f"|{'---|' * len(content.head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in content.rows)])


def cell(text: str) -> str:
    """A cell on one line, in which bars and brackets are themselves."""
    return " ".join(text.splitlines()).replace("|", "&#124;").replace("<", "&lt;")


def verbatim(text: Any) -> str:
    """A name, or a user's text, as it is: nothing in it is Markdown, a link or HTML."""
    for wild, instead in ((r"&(?=#?\w+;)", "&amp;"), ("<", "&lt;"), (r"\|", "&#124;")):
        text = re.sub(wild, instead, str(text))
    return re.sub(r"[\\`*\[\]~$]|#(?!\w+;)|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def code(text: str) -> str:
    """A line of code, within more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    if fence == "`":
        return f"{fence}{text}{fence}"
    return f"{fence} {text} {fence}"


def from_docstring(text: str | None) -> str:
    """The text behind the first line of a docstring, with its mathematics as Markdown has it."""
    _, _, rest = (text or "").strip().partition("\n")
    return re.sub(r":math:`([^`]*)`", r"$\1$", rest.strip()).replace("``", "`")

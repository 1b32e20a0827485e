"""A page of a report as data: sections of text, tables and figures, which renderers write down."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table; a cell is a line of Markdown.

    Args:
        head: Names of the columns.
        rows: The cells of each line.
    """

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Figure:
    """The figure of the study, which is a file beside the page.

    Args:
        caption: What it shows.
    """

    caption: str


Block = str | Table | Figure
"""What follows one another on a page; a text is Markdown: paragraphs, or a list."""


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Page:
    """A page.

    Args:
        title: Plain text, such as the name that a user gave a study.
        opening: Blocks before the first heading.
        sections: In order.
        kind: What stands before the title in the heading: "Study".
    """

    title: str
    opening: list[Block]
    sections: list[Section]
    kind: str = ""

    @property
    def heading(self) -> str:
        """The title, and before it what the page is about."""
        if self.kind:
            return f"{self.kind}: {self.title}"
        return self.title

"""A study as one page of HTML that needs nothing beside it: the page of Markdown, with its figure
in it.
"""

import html
import re
from base64 import b64encode
from pathlib import Path

from markdown_it import MarkdownIt

from .report import Report

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 72rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p, li { max-width: 46rem; overflow-wrap: anywhere }
div { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  border-top: 2px solid #1f2933; border-bottom: 2px solid #1f2933 }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top }
th { border-bottom: 1px solid #1f2933; font-weight: 600 }
img { max-width: 100%; display: block; margin: 1.2rem 0 }
"""


def page(report: Report, figure: Path) -> str:
    """The whole page; the figure, an SVG, stands before what was measured, if there is one."""
    text = re.sub(r"(?<!\\)\$([^$`\n]+)\$", r"*\1*", str(report))
    body = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).render(text)
    body = body.replace("<table>", "<div><table>").replace("</table>", "</table></div>")
    if figure.exists():
        image = b64encode(figure.read_bytes()).decode()
        shown = f'<img alt="Scores of every arm" src="data:image/svg+xml;base64,{image}">'
        body = body.replace("<h2>Measured</h2>", f"<h2>Measured</h2>\n{shown}", 1)
    title = html.escape(report.plan["study"])
    head = (
        '<meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title>'
    )
    head = f"<head>{head}<style>{_STYLE}</style></head>"
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body>\n{body}</body></html>\n'

"""What Sphinx would find in the sources of the pages, in seconds: links, contents,
reStructuredText, names.
"""

import inspect
import io
import re
from fnmatch import fnmatch
from pathlib import Path
from pydoc import locate

import layout
import patterns
from docutils.frontend import get_default_settings
from docutils.nodes import enumerated_list, field_body, literal
from docutils.parsers.rst import Parser, roles
from docutils.utils import new_document
from formulas import not_enumerated
from markdown_it import MarkdownIt
from sphinx.ext.napoleon import Config, GoogleDocstring

for role in ("attr", "class", "data", "doc", "func", "meth", "mod", "obj"):  # Sphinx's own
    roles.register_generic_role(role, literal)


class Source:
    """The links, anchors and tables of contents of a Markdown page."""

    def __init__(self, path: Path) -> None:
        self.links, self.anchors, self.contents = list[str](), set[str](), list[str]()
        tokens = MarkdownIt().enable("table").parse(path.read_text("utf-8"))
        for token, title in zip(tokens, [*tokens[1:], None], strict=True):
            if token.type == "heading_open" and title:
                text = "".join(part.content for part in title.children or [])
                # as GitHub and MyST do
                self.anchors.add(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
            for part in token.children or []:
                self.links += [
                    str(link) for key in ("href", "src") if (link := part.attrs.get(key))
                ]
            directive, _, argument = token.info.partition(" ")
            if directive == "{toctree}":
                lines = [
                    line for line in token.content.splitlines() if line and not line.startswith(":")
                ]
                self.contents += [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
            elif directive == "{image}":
                self.links.append(argument)
        self.links += [
            f"{page}.md"
            for page in re.findall(r"^:link: (\S+)$", path.read_text("utf-8"), re.MULTILINE)
        ]


def faults(folder: Path) -> list[str]:
    """A line for each link that leads nowhere, each wrong line of an example, and each page without
    an entry.
    """
    folder = folder.resolve()
    pages = {path: Source(path) for path in sorted(folder.rglob("*.md"))}
    made = {
        folder / name
        for name in ("gallery/index.rst", "story/index.rst", "reference/index.rst", "play.html")
    }
    made |= {
        folder / f"patterns/{patterns.slug(each)}.rst" for each in patterns.catalogue().values()
    }
    found, listed = [], {folder / "index.md"}
    for path in folder.glob("*_in/*.py"):  # of which Sphinx-Gallery makes pages
        made.add(folder / path.parent.name.removesuffix("_in") / f"{path.stem}.rst")
        blocks = re.findall(r'(?s)^r?"""(.*?)"""', path.read_text("utf-8")) + re.findall(
            r"# %%\n((?:#.*\n)+)", path.read_text("utf-8")
        )
        texts = [re.sub(r"(?m)^# ?", "", block) for block in blocks]
        found += wrong({f"{path.name}, text {number}": text for number, text in enumerate(texts)})
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in page.links:
            place, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = (
                ((folder if link.startswith("/") else path.parent) / place.lstrip("/")).resolve()
                if place
                else path
            )
            if target not in made and not target.is_file():
                found.append(f"{name}: leads nowhere: {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{name}: no such heading: {link}")
        for entry in page.contents:
            begin = path.parent.relative_to(folder)
            pattern = str(begin / entry)
            matches = {
                other for other in {*pages, *made} if fnmatch(_entry(other, folder), pattern)
            }
            listed |= matches
            found += [] if matches else [f"{name}: no page for the entry {entry}"]
    return found + [
        f"{path.relative_to(folder)}: in no table of contents"
        for path in pages
        if path not in listed
    ]


def _entry(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder).with_suffix(""))


def docstrings() -> dict[str, str]:
    """The docstrings of all pages of the reference."""
    found = {}
    for room in layout.rooms():
        for name, value in layout.public(room).items():
            members = vars(value) if inspect.isclass(value) else {}
            documented = {f"{room}.{name}": value} | {
                f"{room}.{name}.{key}": each for key, each in members.items()
            }
            found |= {
                path: inspect.getdoc(each) for path, each in documented.items() if "._" not in path
            }
    return {name: text for name, text in found.items() if text}


def wrong(texts: dict[str, str]) -> list[str]:
    """A line for each warning of docutils, and for each name of this package in a role that nothing
    has.
    """
    config, parser, settings = (
        Config(napoleon_use_ivar=True),
        Parser(),
        get_default_settings(Parser),
    )
    config.napoleon_custom_sections = [("Source", "notes_style")]
    settings.report_level = 2
    found = []
    for name, text in texts.items():
        settings.warning_stream = io.StringIO()
        document = new_document(name, settings)
        parser.parse(str(GoogleDocstring(not_enumerated(text), config, what="function")), document)
        lists = [
            each for each in document.findall(field_body) if any(each.findall(enumerated_list))
        ]
        found += [f"{name}: {each.astext()!r} is an enumerated list" for each in lists]
        found += settings.warning_stream.getvalue().splitlines()
        for path in re.findall(r":(?:attr|class|data|func|meth|mod):`~?(graphattn[\w.]*)`", text):
            found += [] if locate(path) else [f"{name}: there is no {path}"]
    return found

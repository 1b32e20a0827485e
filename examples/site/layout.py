"""Sphinx's sources: Markdown in the tree that it has in the repository, galleries, and a reference
of the public names.

So links hold there and here.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import patterns

import graphattn
from graphattn.viz.style import png
from graphattn.viz.thumbnail import thumbnail

HERE = Path(__file__).parent
EXAMPLES, ROOT = HERE.parent, HERE.parents[1]
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "CITATION.cff",
    "examples/guide/*.md",
    "examples/pictures/*.png",
    "examples/benchmarks/*.md",
    "examples/studies/**/*.md",
    "examples/studies/**/*.svg",
    "examples/studies/papers/*/study.py",
    "tests/claims/README.md",
    "tests/gpu/README.md",
    ".ci/RELEASING.md",
)
#: Titles on the site of pages that have the title of another page in the repository.
TITLES = {ROOT / "README.md": "What graphattn is"}
#: Folders that a page links to, and the page that stands for each.
FOLDERS = {EXAMPLES: "gallery/index.rst", EXAMPLES / "studies": "examples/studies/README.md"}
FOLDERS[EXAMPLES / "guide"] = "guide.md"
FOLDERS[EXAMPLES / "story"] = "story/index.rst"
GALLERIES = {
    "story": "The story\n=========\n\nAttention on graphs, in an order that teaches. Each chapter "
    "is a claim, a "
    "picture and a check; it was executed when this page was made, and can be downloaded as a "
    "notebook.\n",
    "gallery": (
        "Examples\n========\n\nEach is a claim that it checks; ``make examples`` runs them.\n"
    ),
}
#: The first chapter of each part of the story.
PARTS = {
    1: "What a token may read",
    5: "How it reads",
    9: "What is built of it",
    22: "What is written wrongly",
}
#: What stands for an example that calls no builder: a word of its text, and a builder.
STANDS_FOR = {
    "mesh": "mesh_vertices",
    "surface": "mesh_vertices",
    "point": "knn",
    "tree": "tree",
    "program": "tree",
}


class Layout:
    """Sphinx's sources; a file is written only if it differs, so that what has not changed is not
    built again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, set[Path]()

    def write(self, name: str | Path, content: str | bytes) -> None:
        path, content = (
            self.folder / name,
            content.encode() if isinstance(content, str) else content,
        )
        self.written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)

    def remove_stale(self) -> None:
        """Delete pages that an earlier build laid out and this one did not, and their pictures."""
        for folder, kinds in (
            ("", "*.md"),
            ("reference", "*.rst"),
            ("patterns", "*.rst"),
            ("story_in", "*.py"),
            ("gallery_in", "*.py"),
        ):
            for path in set((self.folder / folder).rglob(kinds)) - self.written:
                path.unlink()
        for gallery in GALLERIES:  # Sphinx-Gallery's pages of what lies in "..._in"
            names = [path.stem for path in self.written if path.parent.name == f"{gallery}_in"]
            for path in (self.folder / gallery).rglob("*[0-9][0-9]_*"):
                if not any(name in path.name for name in names):
                    path.unlink()


def page(path: Path) -> str:
    """A page of the repository, whose links begin at the root and lead from examples and folders to
    their pages.
    """

    def target(link: re.Match[str]) -> str:
        file = (path.parent / link[1]).resolve()
        if file.parent == EXAMPLES and re.match(r"\d\d_", file.name):
            return f"](/gallery/{file.stem}.rst{link[2]})"
        if file.parent == HERE / "pages":
            return f"](/{file.name}{link[2]})"
        return f"](/{FOLDERS.get(file) or file.relative_to(ROOT)}{link[2]})"

    text = path.read_text("utf-8")
    if path in TITLES:
        text = re.sub(r"\A# .*", f"# {TITLES[path]}", text)
    return re.sub(r"\]\((?!https?:|#)([^)#\s]+)(#?[^)\s]*)\)", target, text)


def example(path: Path) -> str:
    """An example whose docstring begins with a title, which is its first clause, as Sphinx-Gallery
    requires.
    """
    opening, docstring, code = path.read_text("utf-8").split('"""', 2)
    first, _, rest = docstring.partition("\n\n")
    title, _, claim = " ".join(first.split()).rstrip(".").partition(": ")
    paragraphs = [
        f"{title}\n{'=' * len(title)}",
        f"{claim[:1].upper()}{claim[1:]}." if claim else "",
        rest,
    ]
    indented = re.compile(r"\n\n((?:    .*\n?)+)")
    text = indented.sub(r"\n\n.. code-block:: text\n\n\1", "\n\n".join(filter(None, paragraphs)))
    return f'{opening}r"""{text}\n"""{code}'


def order(chapters: list[Path]) -> str:
    """The chapters as a numbered list, by part, each with its claim."""
    lines, part = [], None
    for path in chapters:
        heading, claim = example(path).split('"""')[1].split("\n\n")[:2]
        number, title = int(path.name[:2]), heading.split("\n")[0]
        own = max(first for first in PARTS if first <= number)
        if own != part:
            lines += ["", f"**{PARTS[own]}**", ""]
            part = own
        lines.append(f"{number}. :doc:`{title} <{path.stem}>`. {claim}")
    return "\n".join(lines) + "\n"


def thumbnail_of(code: str) -> bytes:
    """The first graph that an example builds, as the gallery of patterns draws that builder's."""
    named = list(patterns.catalogue().values())
    called = re.findall(r"\b(?:graphs\.)?([a-z_]+)\(", code)
    called += [builder for word, builder in STANDS_FOR.items() if word in code] + ["full"]
    first = next(each for name in called for each in named if each.code.startswith(f"{name}("))
    return png(thumbnail(first, 4, 2.8), 100)


def rooms() -> list[str]:
    values = {name: getattr(graphattn, name) for name in graphattn.__all__}
    spaces = [name for name, value in values.items() if inspect.ismodule(value)]
    return ["graphattn", *(f"graphattn.{name}" for name in spaces)]


def public(room: str) -> dict[str, Any]:
    """The functions and classes of a namespace by name; those of the top are imported at first
    use.
    """
    module = import_module(room)
    names = [
        name for name in getattr(module, "__all__", None) or dir(module) if not name.startswith("_")
    ]
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if callable(value)}


def reference(layout: Layout) -> None:
    """A page for each namespace; Sphinx makes one for each of its names."""
    for room in rooms():
        module = import_module(room)
        groups: dict[str, list[str]] = {}
        for name, value in public(room).items():
            if module is not graphattn and value is vars(graphattn).get(name):
                group = "At the top"  # documented there
            elif room == "graphattn.graphs":
                group = (
                    value.__module__.removeprefix(f"{room}.")
                    .split(".")[0]
                    .replace("_", " ")
                    .capitalize()
                )
            else:
                group = "Classes" if inspect.isclass(value) else "Functions"
            groups.setdefault(group, []).append(name)
        summary = (inspect.getdoc(module) or "").split("\n\n")[0]
        lines = [room, "=" * len(room), "", f".. currentmodule:: {room}", "", summary]
        top = groups.pop("At the top", [])
        if top:
            lines += [
                "",
                "Imported from the top: "
                + ", ".join(f":py:obj:`graphattn.{name}`" for name in top)
                + ".",
            ]
        for group, names in groups.items():
            table = [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
            lines += ["", group, "-" * len(group), "", *table, *(f"   {name}" for name in names)]
        layout.write(f"reference/{room}.rst", "\n".join(lines) + "\n")
    toctree = "".join(f"   {room}\n" for room in rooms())
    layout.write(
        "reference/index.rst", f"Reference\n=========\n\n.. toctree::\n   :maxdepth: 2\n\n{toctree}"
    )


def lay_out(folder: Path, drawn: bool = True) -> None:
    """Write all sources; with ``drawn=False`` without pictures and without the reference."""
    layout = Layout(folder)
    for pattern in PAGES:
        for path in ROOT.glob(pattern):
            layout.write(
                path.relative_to(ROOT), page(path) if path.suffix == ".md" else path.read_bytes()
            )
    for path in (HERE / "pages").glob("*.md"):
        layout.write(path.name, page(path))
    named = patterns.catalogue().values()
    layout.write("zoo.md", patterns.gallery(named, drawn))
    if drawn:
        layout.write("home_patterns.html", patterns.chosen())
        for each in named:
            layout.write(f"patterns/{patterns.slug(each)}.rst", patterns.page(each))
    for gallery, header in GALLERIES.items():
        paths = sorted((EXAMPLES / gallery.replace("gallery", "")).glob("[0-9][0-9]_*.py"))
        layout.write(
            f"{gallery}_in/GALLERY_HEADER.rst",
            header + (order(paths) if gallery == "story" else ""),
        )
        for path in paths:
            text = example(path)
            if drawn and gallery == "gallery":  # not executed, so that it draws nothing
                picture = f"thumbnails/{path.stem}.png"
                layout.write(picture, thumbnail_of(path.read_text("utf-8")))
                text += f"# sphinx_gallery_thumbnail_path = '{picture}'\n"
            layout.write(f"{gallery}_in/{path.name}", text)
    if drawn:
        reference(layout)
    layout.remove_stale()

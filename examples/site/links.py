"""Built pages: those without a source, links that lead nowhere, requests to other machines."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "source": "src",
    "iframe": "src",
    "object": "data",
}
OUTER = re.compile(r"(https?:)?//")
IN_STYLE = re.compile(r"(?:url\(|@import)[\s\"']*((?:https?:)?//[^)\"']+)")


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.anchors, self.outer = list[str](), set[str](), list[str]()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        link = values.get("href" if tag == "a" else LOADED.get(tag, ""))
        if not link or link.startswith(("mailto:", "data:", "javascript:")):
            return
        if not OUTER.match(link):
            self.links.append(link)
        elif tag != "a":
            self.outer.append(link)


def faults(folder: Path) -> list[str]:
    """A line for each link that leads nowhere and each request to another machine."""
    folder = folder.resolve()
    pages = {
        path: Page(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts
    }
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        found += [f"{name}: asks another machine for {link}" for link in page.outer]
        for link in page.links:
            place, _, anchor = link.partition("#")
            target = (path.parent / unquote(place.split("?")[0])).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                anchor and target in pages and unquote(anchor) not in pages[target].anchors
            ):
                found.append(f"{name}: leads nowhere: {link}")
    for path in sorted(folder.rglob("*.css")):
        requests = IN_STYLE.findall(path.read_text("utf-8"))
        found += [f"{path.relative_to(folder)}: asks another machine for {url}" for url in requests]
    return found


def remove_stale(html: Path, source: Path, extra: Path) -> None:
    """Delete built pages whose source is gone; those of ``extra`` and Sphinx's own have none."""
    kept = {"genindex.html", "search.html", "py-modindex.html"}
    kept |= {str(path.relative_to(extra)) for path in extra.rglob("*.html")}
    for path in html.rglob("*.html"):
        name = path.relative_to(html)
        if name.parts[0].startswith("_") or str(name) in kept:
            continue
        if not any((source / name).with_suffix(kind).exists() for kind in (".md", ".rst")):
            path.unlink()

"""The site: the check of its links finds faults, and the story's chapters keep their form. `make docs` builds it."""

import ast
from pathlib import Path

import links
import pytest

STORY = sorted((Path(__file__).parents[2] / "examples" / "story").glob("[0-9]*.py"))
PAGE = '<h1 id="top">A page</h1><a href="b.html#there">there</a><img src="a.png"><a href="https://example.org">out</a>'


@pytest.fixture
def pages(tmp_path):
    for name, text in {"a.html": PAGE, "b.html": '<p id="there">', "a.png": "", "a.css": "p {color: red}"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_links_that_hold_are_no_faults(pages):
    assert links.faults(pages) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("b.html", "<p id='elsewhere'>", "a.html: leads nowhere: b.html#there"),
        ("b.html", "<p id='there'><a href='c.html'>", "b.html: leads nowhere: c.html"),
        ("b.html", "<p id='there'><a href='#below'>", "b.html: leads nowhere: #below"),
        ("b.html", "<p id='there'><script src='//cdn.org/a.js'>", "b.html: asks another machine for //cdn.org/a.js"),
        ("a.css", "@import 'https://fonts.org/a'", "a.css: asks another machine for https://fonts.org/a"),
    ],
)
def test_a_fault_is_found(pages, name, text, fault):
    (pages / name).write_text(text)
    assert links.faults(pages) == [fault]


@pytest.mark.parametrize("path", STORY, ids=lambda path: path.stem)
def test_a_chapter_is_a_page_with_a_claim_a_picture_and_an_assert(path):
    text = path.read_text()
    assert text.count("\n") <= 80
    tree = ast.parse(text)
    assert ": " in ast.get_docstring(tree).splitlines()[0]
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert "plt.subplots" in text or "ga.plot" in text

"""The site: no fault in the sources of its pages, nor in the check of built ones; chapters keep
their form.

`make docs` builds it.
"""

import ast
import inspect
import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import formulas
import layout
import links
import members
import patterns
import pytest
import sources

import graphattn as ga

EXAMPLES = Path(__file__).parents[2] / "examples"
STORY = sorted((EXAMPLES / "story").glob("[0-9]*.py"))
PAGE = (
    '<h1 id="top">A page</h1><a href="b.html#there">there</a><img src="a.png"><a '
    'href="https://example.org">out</a>'
)


@pytest.fixture
def pages(tmp_path):
    for name, text in {
        "a.html": PAGE,
        "b.html": '<p id="there">',
        "a.png": "",
        "a.css": "p {color: red}",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_links_that_hold_are_no_faults(pages):
    assert links.faults(pages) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("b.html", "<p id='elsewhere'>", "a.html: leads nowhere: b.html#there"),
        ("b.html", "<p id='there'><a href='c.html'>", "b.html: leads nowhere: c.html"),
        ("b.html", "<p id='there'><a href='#below'>", "b.html: leads nowhere: #below"),
        (
            "b.html",
            "<p id='there'><script src='//cdn.org/a.js'>",
            "b.html: asks another machine for //cdn.org/a.js",
        ),
        (
            "a.css",
            "@import 'https://fonts.org/a'",
            "a.css: asks another machine for https://fonts.org/a",
        ),
    ],
)
def test_a_fault_is_found(pages, name, text, fault):
    (pages / name).write_text(text, encoding="utf-8")
    assert links.faults(pages) == [fault]


def test_the_sources_of_all_pages_have_no_fault(tmp_path):
    layout.lay_out(tmp_path, drawn=False)
    assert len(list(tmp_path.rglob("*.md"))) > 30
    assert sources.faults(tmp_path) == []


def test_a_fault_of_a_source_is_found(tmp_path):
    contents = "```{toctree}\na\nstory/index\nstory/1\n%s```\n"
    texts = {
        "index.md": contents % "b\n" + "[](a.md#two-words) [](/c.md) [](#top) [](story/1.rst)",
        "a.md": "# Two `words`\n[](https://a.org) ![](a.svg)",
        "b.md": contents % "d\n",
        "e.md": "# Not listed\n[](a.md#three-words)",
        "story_in/1.py": '"""Title\n====="""\n# %%\n# *not closed\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert sources.faults(tmp_path) == [
        "1.py, text 1:1: (WARNING/2) Inline emphasis start-string without end-string.",
        "a.md: leads nowhere: a.svg",
        "b.md: no page for the entry d",
        "e.md: no such heading: a.md#three-words",
        "index.md: leads nowhere: /c.md",
        "index.md: no such heading: #top",
        "e.md: in no table of contents",
    ]


def test_a_page_whose_source_is_gone_is_deleted(tmp_path):
    source = tmp_path / "source"
    html = tmp_path / "html"
    layout.lay_out(source, drawn=False)
    kept = [f"story/{STORY[0].stem}.rst", f"story/images/sphx_glr_{STORY[0].stem}_001.svg"]
    stale = ["story/07_gone.rst", "story/images/sphx_glr_07_gone_001.svg", "patterns/gone.rst"]
    for name in kept + stale:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("", encoding="utf-8")
    layout.lay_out(source, drawn=False)
    assert [name for name in kept + stale if (source / name).exists()] == kept
    built = ["index.html", f"story/{STORY[0].stem}.html", "play.html", "search.html"]
    for name in [*built, "story/07_gone.html", "patterns/gone.html"]:
        (html / name).parent.mkdir(parents=True, exist_ok=True)
        (html / name).write_text("", encoding="utf-8")
    links.remove_stale(html, source, layout.HERE / "play")
    assert sorted(str(path.relative_to(html)) for path in html.rglob("*.html")) == sorted(built)


FEW = ("Longformer", "cross-attention", "XLNet query", "virtual node", "per-head graphs", "kNN")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FEW else pytest.mark.slow)
        for name in patterns.catalogue()
    ],
)
def test_a_pattern_has_a_page_whose_program_builds_its_graph(name, capsys):
    named = patterns.catalogue()[name]
    text = patterns.page(named, drawn=False)
    values = {}
    exec(patterns.call(named), values)
    assert values["graph"].equals(named.graph())
    assert values["y"].shape == (values["graph"].num_targets, 32)
    assert capsys.readouterr().out.startswith("AttentionGraph(")
    assert max(map(len, patterns.call(named).splitlines())) <= 100
    assert sources.wrong({name: text}) == []
    assert f"{values['graph'].num_edges:,}, " in text
    assert not named.source or f"From {named.source}: https://" in text
    assert "Source:" not in text  # a builder's, of another paper
    assert "catalogue" not in patterns.call(named)  # names of the library's own files
    slugs = {patterns.slug(each) for each in patterns.catalogue().values()}
    assert set(re.findall(r":doc:`[^<]*<(\w+)>`", text)) <= slugs
    written = {path.stem for path in (layout.HERE / "pages").glob("*.md")} | {"zoo"}
    pages = re.findall(r":doc:`(?:[^<`]*<)?/([^>`]*)>?`", text)
    assert all(page in written or (layout.ROOT / f"{page}.md").exists() for page in pages)


def test_a_page_has_the_words_that_a_pattern_is_looked_for_by():
    for name in ("axial, rows", "axial, columns", "criss-cross (CCNet)"):
        text = patterns.page(patterns.catalogue()[name], drawn=False)
        assert "axial attention" in text
        assert "row and column attention" in text
        assert ":doc:`class token <class_token>`" in text  # how global tokens are added


def test_the_page_of_a_class_token_links_its_builder_and_says_where_it_stands():
    for name, rows in {"class token": "N + 1 rows", "registers": "N + 4 rows"}.items():
        text = patterns.page(patterns.catalogue()[name], drawn=False)
        assert ":meth:`~graphattn.AttentionGraph.with_global_tokens`" in text
        assert f"``x`` then has {rows}" in text


def test_a_list_in_code_is_not_broken_and_points_lead_to_points():
    named = patterns.catalogue()["DGCNN"]
    assert "[[3.0, 1, 2], [1, 4, 1], [2, 1, 5]]" in patterns.call(named)
    text = patterns.page(named, drawn=False)
    assert "Points and meshes </start_shapes>" in text
    assert "# 48 points spread evenly" in text
    assert "seen from the side" in patterns._drawing(named)


def test_each_card_of_the_home_page_and_of_the_gallery_leads_to_a_page_of_its_own(monkeypatch):
    monkeypatch.setattr(patterns, "pictures", lambda named: "")  # fifteen take seconds
    every = patterns.catalogue()
    assert len({patterns.slug(each) for each in every.values()}) == len(every)
    leads = r'<a href="patterns/(\w+)\.html"'
    chosen = [patterns.slug(ga.graphs.zoo()[name]) for name in patterns.CHOSEN]
    assert re.findall(leads, patterns.chosen()) == chosen
    few = [every[name] for name in ("full", "kNN")]
    page = patterns.gallery(few)
    assert re.findall(leads, page) == ["full", "knn"]
    assert re.findall("(?m)^patterns/.*", page) == ["patterns/full", "patterns/knn"]


@pytest.mark.slow
def test_docstrings_are_restructured_text_whose_names_exist():
    texts = sources.docstrings()
    assert {
        "graphattn.attention",
        "graphattn.nn.GraphAttention.forward",
        "graphattn.graphs.knn",
    } <= set(texts)
    assert sources.wrong(texts) == []
    text = (
        "Args:\n    x: A ``tensor of :class:`graphattn.AttentionGraph` and "
        ":func:`graphattn.graphs.lost`."
    )
    assert sources.wrong({"made": text}) == [
        "made:1: (WARNING/2) Inline literal start-string without end-string.",
        "made: there is no graphattn.graphs.lost",
    ]


@pytest.mark.parametrize("path", STORY, ids=lambda path: path.stem)
def test_a_chapter_is_a_page_with_a_claim_a_picture_and_an_assert(path):
    text = path.read_text("utf-8")
    longest = 80
    if "errors" in path.stem:  # all of them are one page
        longest = 290
    assert text.count("\n") <= longest
    tree = ast.parse(text)
    assert ": " in ast.get_docstring(tree).splitlines()[0]
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert "plt.subplots" in text or "ga.plot" in text


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="node runs the page's rules")
def test_the_page_to_play_with_draws_the_librarys_masks():
    """Every builder with several arguments: its Python line, mask, what is reached in three layers,
    and a leak.
    """
    script = """
    const page = require("./masks.js"), found = [], n = 24;
    for (const name in page.build) for (const p of [1, 4, 5]) {
      const mask = page.mask(n, page.build[name](n, p)), reach = page.reach(mask, 3);
      found.push([page.text(name, p, n), mask, reach, page.leaks(reach), page.edges(mask)]);
    }
    const sized = Object.keys(page.build).filter((name) => page.text(name, 4, n) !== page.text(name, 5, n));
    if (String(sized) !== String(Object.keys(page.number))) throw Error(`a label for each number: ${sized}`);
    console.log(JSON.stringify(found))"""
    words = ["node", "-e", script]
    said = subprocess.run(
        words, cwd=EXAMPLES / "site" / "play", capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(said)
    assert len(found) == 30
    for line, mask, reach, leak, edges in found:
        graph = eval(line, {"ga": ga})
        assert graph.mask().tolist() == mask, line
        assert ga.analysis.reach([graph.with_self_loops()] * 3).mask().tolist() == reach, line
        assert (leak is None) == ga.leaks([graph] * 3).ok, line
        assert edges == graph.num_edges, line


@pytest.mark.skipif(not shutil.which("node"), reason="node runs the page's rules")
def test_the_page_to_play_with_says_of_a_grid_that_it_reads_both_ways():
    """No leak of a token that lies beside another, and no number out of its field's bounds."""
    script = """
    const page = require("./masks.js");
    const said = ["rows", "columns", "causal", "full"].map((name) =>
      page.order([name, "sinks"], page.leaks(page.mask(12, page.build[name](12, 6))), "graph", 2));
    const numbers = ["20", "-3", "", "2.9"].map((value) => page.within(value, 0, 7));
    console.log(JSON.stringify([said, numbers, page.text("columns", 6, 36)]))"""
    folder = EXAMPLES / "site" / "play"
    words = ["node", "-e", script]
    said = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    (rows, columns, causal, full), numbers, text = json.loads(said)
    assert rows == columns == {"words": "tokens read both ways, as in an image", "check": ""}
    assert causal["check"] == "assert ga.leaks([graph] * 2).ok"
    assert full["check"] == "assert not ga.leaks([graph] * 2).ok"
    assert full["words"].startswith("it leaks: token 0 depends on the later token 1")
    assert numbers == [7, 0, 0, 2]
    assert text == "ga.graphs.window_partition((6, 6), (6, 1))"


@pytest.mark.parametrize("name", ["index", "start"])
def test_the_lines_that_install_can_be_pasted(name):
    console = (layout.HERE / "pages" / f"{name}.md").read_text("utf-8").split("```console\n")[1]
    lines = console.split("```")[0].splitlines()
    assert lines == ["$ python -m pip install ."]
    assert not set("<>;|&") & set("".join(lines))


def test_the_reference_is_of_the_names_that_the_package_writes_down(tmp_path):
    """Read from the sources, as type checkers do, and from the pages as they are laid out."""
    layout.reference(layout.Layout(tmp_path))
    package = Path(ga.__file__).parent
    for room in layout.rooms():
        folder = package / room.removeprefix("graphattn").lstrip(".")
        stub = folder / "__init__.pyi"
        tree = ast.parse((stub if stub.exists() else folder / "__init__.py").read_text("utf-8"))
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        names = {alias.asname for node in imports for alias in node.names}
        names = {name for name in names if name and not name.startswith("_")}
        names = {name for name in names if callable(getattr(import_module(room), name))}
        page = (tmp_path / "reference" / f"{room}.rst").read_text("utf-8")
        shown = {line.strip() for line in page.splitlines() if re.fullmatch(r"   \w+", line)}
        shown |= set(re.findall(r":py:obj:`graphattn\.(\w+)`", page))
        assert shown == names, room


def test_a_long_formula_breaks_at_wide_spaces_and_relations_outside_brackets():
    tex = r"y_t = \sum_{s = 1} f(a \quad b), \qquad \alpha_{ts} = \mathrm{softmax}_s \, \langle q, k \rangle"
    parts = formulas.pieces(tex)
    assert "".join(parts) == tex
    assert [part.split()[0] for part in parts] == ["y_t", "=", r"\alpha_{ts}", "="]
    assert formulas.pieces("a = b") == ["a = b"]


def test_tex_that_a_converter_left_is_named():
    mathml = r'<math alttext="\ok"><mi>\arg</mi><mi>max</mi><mtext> (norm\_first)</mtext></math>'
    assert formulas.unknown(mathml) == ["\\arg", "\\_"]
    assert formulas.unknown("<math><mi>&#x02016;</mi></math>") == []


def test_no_formula_of_a_docstring_stays_tex():
    """As `make docs` says of each page; skipped where the converter is not installed."""
    convert = pytest.importorskip("latex2mathml.converter").convert
    for name, text in sources.docstrings().items():
        for tex in re.findall(r":math:`([^`]*)`", text):
            left = [formulas.unknown(convert(piece)) for piece in formulas.pieces(tex)]
            assert not any(left), name


def test_a_letter_that_describes_an_argument_is_no_list():
    text = "A layer.\n\nArgs:\n    num_heads: H.\n    dim: C. It is even.\n"
    assert sources.wrong({"made": text}) == []
    assert formulas.not_enumerated("T.") == r"\T."  # a property's
    assert formulas.not_enumerated("    H: C. x\n1. a list\n") == "    H: \\C. x\n1. a list\n"


def test_a_colon_in_a_propertys_summary_ends_no_type():
    """Napoleon would show ": True if ..." as the type of what follows the colon."""
    napoleon = pytest.importorskip("sphinx.ext.napoleon")

    def read(text):
        config = napoleon.Config(napoleon_use_ivar=True)
        return str(napoleon.GoogleDocstring(text, config, what="property", name="p")).split("\n")

    summary = inspect.getdoc(ga.AttentionGraph.has_repeated_edges)
    assert read(members.of_property(summary))[0] == summary
    assert any(":type:" in line for line in read(summary))
    listed = "int64 (E,): the source of every edge."
    assert ":type: int64 (E,)" in read(members.of_property(listed))
    assert members.of_property("Edges per pair.\n\nNote: two") == "Edges per pair.\n\nNote: two"


def test_what_is_hidden_on_reference_pages_is_there_and_in_no_page():
    pages = [path for path in EXAMPLES.rglob("*.md") if path.stem != "extending"]  # for developers
    texts = [path.read_text("utf-8") for path in pages]
    for name in members.INTERNAL:
        holders = (ga.AttentionGraph, ga.PerExample, ga.PerHead, type(ga.graphs.causal(...)))
        assert any(hasattr(holder, name) for holder in holders), name
        assert not any(f".{name}(" in text for text in texts), name

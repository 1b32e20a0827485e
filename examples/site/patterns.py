"""Pages of the named patterns: one for each, a gallery of all, and the few on the home page."""

import inspect
import re
import textwrap
from collections.abc import Iterable
from functools import cache
from html import escape
from itertools import groupby

import graphattn as ga
from graphattn.graphs.catalogue import Named, inputs
from graphattn.viz.gallery import card, pictures
from graphattn.viz.thumbnail import graph_of

#: On the home page, and in the picture of the README.
CHOSEN = (
    "Longformer",
    "BigBird",
    "Sparse Transformer strided",
    "speculative tree",
    "packed documents",
    "Swin, shifted",
    "DiNA",
    "STA",
    "kNN",
    "Point Transformer V3, hilbert",
    "geodesic ball",
    "ancestors",
    "Exphormer",
    "butterfly",
    "small world",
)
#: What to read after the patterns of a family: pages and their titles.
NEXT = {
    "sequence": {
        "examples/guide/graphs": "Graphs",
        "examples/guide/hugging_face": "Hugging Face models",
    },
    "grid": {"examples/guide/graphs": "Graphs", "examples/guide/models": "Layers and models"},
    "points": {"start_shapes": "Points and meshes", "examples/guide/models": "Layers and models"},
    "mesh": {"start_shapes": "Points and meshes", "examples/guide/pictures": "Pictures of shapes"},
    "network": {"examples/guide/graphs": "Graphs", "start_biases": "Inductive biases"},
}
#: A line that says how a pattern differs from the one before it.
_ELLIPTIC = re.compile(r"the same(,| with| between)")
_COLUMNS = 84  # of code
_MOST_ALIKE = 8
_WIDTH, _HEIGHT = 4.2, 2.8  # of a drawing on its page, inches
_MASK = 264  # pixels of a mask there


@cache
def catalogue() -> dict[str, Named]:
    return dict(ga.graphs.zoo())


def slug(named: Named) -> str:
    """The file name of a page, of small letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", named.name.lower()).strip("_")


def builders(named: Named) -> list[str]:
    """The public builders that the code of a pattern calls, in order."""
    called = re.findall(r"(?<![\w.])([a-z_]+)\(", named.code)
    return list(dict.fromkeys(name for name in called if name in ga.graphs.__all__))


def call(named: Named) -> str:
    """A program that builds the pattern's graph and runs a layer on it."""
    words = dict.fromkeys(re.findall(r"(?<![\w.])[a-z_]+\b", named.code))
    inner = [name for name in words if name in inputs.__all__]
    lines = ["import torch", "", "import graphattn as ga"]
    top = [name for name in words if name in ga.__all__ and name not in ga.graphs.__all__]
    if top:
        lines.append(f"from graphattn import {', '.join(sorted(top))}")
    if builders(named):
        lines.append(f"from graphattn.graphs import {', '.join(sorted(builders(named)))}")
    if inner:
        lines.append(f"from graphattn.graphs.catalogue.inputs import {', '.join(sorted(inner))}")
    code = f"graph = {named.code}"
    if len(code) > _COLUMNS:
        wrapped = textwrap.wrap(named.code, _COLUMNS - 4, break_long_words=False)
        code = "graph = (\n" + textwrap.indent("\n".join(wrapped), "    ") + "\n)"
    graph = graph_of(named)
    x = f"torch.randn({graph.num_targets}, 32)"
    if graph.is_square:
        run = f"y = layer({x}, graph)"
    else:
        run = f"y = layer({x}, graph, context=torch.randn({graph.num_sources}, 32))"
    layer = "layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)"
    return "\n".join([*lines, "", code, "print(graph)", layer, run])


def facts(named: Named) -> dict[str, str]:
    """What the small graph is: its size, what a target reads, and how far layers of it reach."""
    graph = graph_of(named)
    degree = graph.in_degree
    rows = {"nodes": f"{graph.num_targets}"}
    if not graph.is_square:
        rows = {"targets": f"{graph.num_targets}", "sources": f"{graph.num_sources}"}
    rows["edges"] = f"{graph.num_edges:,}, {graph.density:.1%} of all pairs"
    fewest = int(degree.min())
    most = int(degree.max())
    rows["a target reads"] = f"{fewest} to {most} sources"
    if fewest == most:
        rows["a target reads"] = f"{most} sources"
    if graph.is_square:
        rows["reach"] = str(ga.analyse.hops(graph))
        rows["causal"] = "no"
        if bool((graph.source <= graph.target).all()):
            rows["causal"] = "yes: no node reads a later one"
    return rows


def _source(builder: str) -> str:
    """The section of a builder's docstring that names where it is from, or nothing."""
    text = inspect.getdoc(getattr(ga.graphs, builder)) or ""
    section = re.search(r"^Source:\s*(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    if not section:
        return ""
    return " ".join(section[1].split())


def _before(named: Named) -> Named:
    """The pattern before it in the catalogue whose line needs no other."""
    patterns = list(catalogue().values())
    place = patterns.index(named)
    return next(each for each in patterns[place - 1 :: -1] if not _ELLIPTIC.match(each.line))


def _alike(named: Named) -> list[Named]:
    """Other patterns of the same paper, then those of the same builders, the closest first."""
    others = [each for each in catalogue().values() if each.name != named.name]
    same_paper = [each for each in others if named.paper and each.paper == named.paper]
    own = set(builders(named))

    def distance(other: Named) -> tuple[int, bool]:
        theirs = set(builders(other))
        return len(own ^ theirs) - 2 * len(own & theirs), other.family != named.family

    shared = [each for each in others if own & set(builders(each)) and each not in same_paper]
    return [*same_paper, *sorted(shared, key=distance)][:_MOST_ALIKE]


def page(named: Named, drawn: bool = True) -> str:
    """The page of a pattern, in reStructuredText; ``drawn=False`` leaves out its picture."""
    lines = [named.name, "=" * len(named.name), "", f"{named.line[0].upper()}{named.line[1:]}."]
    if _ELLIPTIC.match(named.line):
        before = _before(named)
        lines += [
            "",
            f"The same as in :doc:`{before.name} <{slug(before)}>`, which stands before it.",
        ]
    if named.paper:
        lines += ["", f"From {named.paper}."]
    if drawn:
        picture = pictures(named, _WIDTH, _HEIGHT, _MASK)
        note = "Left the mask: a row for each target, a column for each source that it may read."
        lines += ["", ".. raw:: html", "", f'   <div class="pattern">{picture}</div>', "", note]
    code = textwrap.indent(call(named), "   ")
    lines += ["", ".. code-block:: python", "", code, ""]
    lines += [f'The same graph is ``ga.graphs.zoo()["{named.name}"].graph()``, and']
    lines += [f"``graphattn show '{named.name}'`` on the command line.", ""]
    lines += ["At this size", "------------", "", ".. list-table::", "   :widths: 1 3", ""]
    for name, value in facts(named).items():
        lines += [f"   * - {name}", f"     - {value}"]
    lines += ["", "Its builders", "------------", ""]
    for builder in builders(named):
        summary = (inspect.getdoc(getattr(ga.graphs, builder)) or "").split("\n\n")[0]
        lines += [f":func:`~graphattn.graphs.{builder}`", f"   {' '.join(summary.split())}", ""]
        source = _source(builder)
        if source:
            lines += [f"   Source: {source}", ""]
    lines += ["Read next", "---------", ""]
    alike = [f":doc:`{each.name} <{slug(each)}>`" for each in _alike(named)]
    if alike:
        lines += [f"* Patterns close to it: {'; '.join(alike)}."]
    pages = [f":doc:`{title} </{path}>`" for path, title in NEXT[named.family].items()]
    lines += [f"* {' and '.join(pages)}; :doc:`all patterns </zoo>`."]
    return "\n".join(lines) + "\n"


def chosen() -> str:
    """The patterns of the home page, each a picture that leads to its page."""
    cards = []
    for name in CHOSEN:
        named = ga.graphs.zoo()[name]
        name = f"<b>{escape(named.name)}</b>"
        cards.append(f'<a href="patterns/{slug(named)}.html">{pictures(named)}{name}</a>')
    return f'<div class="patterns home">{"".join(cards)}</div>\n'


def gallery(patterns: Iterable[Named], drawn: bool = True) -> str:
    """All patterns by family, each a card that leads to its page."""
    patterns = list(patterns)
    lines = ["# Patterns", "", f"The {len(patterns)} patterns that the library names, by family."]
    lines += ["Left the mask: targets are rows, sources are columns, dark where a target reads a"]
    lines += ["source. Right the graph where its nodes live, whole, or the sources of one or two"]
    lines += ["marked targets. Arcs above a line read earlier nodes and below it later ones; of"]
    lines += ["two rows the targets are above."]
    for family, members in groupby(patterns, lambda named: named.family):
        named = list(members)
        lines += ["", f"## {family.capitalize()} ({len(named)})"]
        if drawn:
            cards = [f'<a href="patterns/{slug(each)}.html">{card(each)}</a>' for each in named]
            lines += ["", "```{raw} html", '<div class="patterns">', *cards, "</div>", "```"]
    entries = [f"patterns/{slug(each)}" for each in patterns]
    lines += ["", "```{toctree}", ":hidden:", "", *entries, "```"]
    return "\n".join(lines) + "\n"

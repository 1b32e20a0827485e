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
from graphattn.viz.layouts.grid import Grid
from graphattn.viz.layouts.network import NetworkLayout
from graphattn.viz.layouts.sequence import Sequence
from graphattn.viz.layouts.two_rows import TwoRows
from graphattn.viz.thumbnail import graph_of, place_in

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
#: The inputs that code names: in words, and as lines that make them.
INPUTS = {
    "sphere": (
        "48 points spread evenly on the unit sphere, from top to bottom, of shape (48, 3)",
        """
step = torch.arange(48, dtype=torch.float64) + 0.5
height = 1 - step / 24
angle = step * torch.pi * (3 - 5**0.5)
ring = (1 - height**2).sqrt()
sphere = torch.stack((ring * angle.cos(), ring * angle.sin(), height), 1)
""",
    ),
    "sphere_faces": (
        "92 triangles over the points of ``sphere``, of shape (92, 3)",
        """
from scipy.spatial import ConvexHull
sphere_faces = torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()
""",
    ),
    "square": (
        "48 points spread over the unit square in no order of place, of shape (48, 2)",
        """
powers = torch.tensor([0.7548776662, 0.5698402910], dtype=torch.float64)
square = torch.arange(1, 49)[:, None] * powers % 1
""",
    ),
    "two_clouds": (
        "the cloud of each of the 48 points, the first 20 and the other 28",
        "two_clouds = (torch.arange(48) >= 20).long()",
    ),
    "cells": (
        "the cells of a grid of 8 x 8, row by row, of shape (64, 2)",
        "cells = torch.cartesian_prod(torch.arange(8), torch.arange(8))",
    ),
    "octahedron_faces": (
        "8 triangles over 6 vertices, of shape (8, 3)",
        """
octahedron_faces = torch.tensor(
    [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
)
""",
    ),
    "karate": (
        "Zachary's karate club, a graph of 34 members and 78 friendships",
        """
import networkx
club = networkx.karate_club_graph()
karate = ga.from_mask(torch.from_numpy(networkx.to_numpy_array(club) > 0))
""",
    ),
    "node_types": (
        "which side each member of the karate club took, of shape (34,)",
        """
import networkx
club = networkx.karate_club_graph()
node_types = torch.tensor([int(club.nodes[node]["club"] == "Officer") for node in club])
""",
    ),
    "dag": (
        "a graph of 24 nodes without cycles, where t reads t // 2 and t // 3",
        """
pairs = sorted({(t, t // d) for t in range(1, 24) for d in (2, 3)})
dag = ga.from_edge_index(torch.tensor(pairs).T.flip(0), num_nodes=24)  # sources, then targets
""",
    ),
    "parents": (
        "the parents of 31 nodes, a binary tree level by level, of shape (31,)",
        "parents = (torch.arange(31) - 1) // 2",
    ),
}
#: A field above the cards; the script shows it, and hides what does not have all its words.
_FILTER = (
    '<p class="filter" hidden><label>Find <input type="search" placeholder="causal window, Swin,'
    ' mesh, Child 2019 ..."></label> <output></output></p>',
    '<script defer src="_static/filter.js"></script>',
)
_MASK_SHOWS = "targets downwards, sources across, dark where the target reads the source."
#: A line that says how a pattern differs from the one before it.
_ELLIPTIC = re.compile(r"the same(,| with| between)")
_COLUMNS = 84  # of code
_NO_BREAK = "\0"  # stands for a space while code is wrapped
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


def methods(named: Named) -> list[str]:
    """The methods of graphs that the code of a pattern calls, in order."""
    called = re.findall(r"\.([a-z_]+)\(", named.code)
    return list(dict.fromkeys(name for name in called if hasattr(ga.AttentionGraph, name)))


def call(named: Named) -> str:
    """A program that builds the pattern's graph and runs a layer on it."""
    words = dict.fromkeys(re.findall(r"(?<![\w.])[a-z_]+\b", named.code))
    imports = ["import torch"]
    made = []
    for name in _inputs(named):
        description, code = INPUTS[name]
        made += ["", f"# {description.replace('``', '')}"]
        for line in code.strip().splitlines():
            if re.match("import |from ", line):
                imports.append(line)
            else:
                made.append(line)
    top = [name for name in words if name in ga.__all__ and name not in ga.graphs.__all__]
    own = ["import graphattn as ga"]
    if top:
        own.append(f"from graphattn import {', '.join(sorted(top))}")
    if builders(named):
        own.append(f"from graphattn.graphs import {', '.join(sorted(builders(named)))}")
    of_points = sorted(name for name in words if name in ga.shapes.__all__)
    if of_points:
        own.append(f"from graphattn.shapes import {', '.join(of_points)}")
    imports = sorted(set(imports), key=lambda line: (line.startswith("from"), line))
    lines = [*imports, "", *own, *made]
    code = f"graph = {named.code}"
    if len(code) > _COLUMNS:
        code = f"graph = (\n{textwrap.indent(_wrapped(named.code), '    ')}\n)"
    graph = graph_of(named)
    x = f"torch.randn({graph.num_targets}, 32)"
    if graph.is_square:
        run = f"y = layer({x}, graph)"
    else:
        run = f"y = layer({x}, graph, context=torch.randn({graph.num_sources}, 32))"
    layer = "layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)"
    return "\n".join([*lines, "", code, "print(graph)", layer, run])


def _wrapped(code: str) -> str:
    """An expression on several lines; a list that fits on one is not broken."""

    def together(found: re.Match[str]) -> str:
        if len(found[0]) > _COLUMNS // 2:
            return found[0]
        return found[0].replace(" ", _NO_BREAK)

    kept = re.sub(r"\[(?:[^][]|\[[^][]*\])*\]", together, code)
    lines = textwrap.wrap(kept, _COLUMNS - 4, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


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
        rows["reach"] = str(ga.analysis.hops(graph))
        rows["causal"] = "no"
        if graph.is_causal:
            rows["causal"] = "yes: no node reads a later one"
    return rows


def _inputs(named: Named) -> list[str]:
    """The small inputs that the code of a pattern names, each after those that its lines name."""
    found: list[str] = []

    def add(code: str) -> None:
        words = dict.fromkeys(re.findall(r"(?<![\w.])[a-z_]+\b", code))
        for name in words:
            if name in inputs.__all__ and name not in found:
                add(INPUTS[name][1].replace(f"{name} =", ""))
                found.append(name)

    add(named.code)
    return found


def _drawing(named: Named) -> str:
    """What the drawing of a pattern shows, as its place is drawn."""
    graph = graph_of(named)
    place = place_in(named, graph)
    marked = "the sources of one or two marked targets"
    if place.is_3d:
        marked = "the sources of a marked target"
    if isinstance(place, Grid):
        return f"the nodes as cells of a grid, and in colour {marked}."
    where = "a node where its point is, seen from the side"
    if not place.is_3d:
        where = "a node where its point is"
    if isinstance(place, NetworkLayout):
        where = "nodes that are joined stand close to each other"
    elif isinstance(place, Sequence):
        where = "the nodes on a line, arcs above it read earlier nodes and arcs below it later ones"
    elif isinstance(place, TwoRows):
        where = "the targets above, the sources below"
    return f"{where}; a line for each edge, or {marked}."


def _tokens_in_front(named: Named) -> list[str]:
    """What tokens in front change in the rows of x; where a grid has none, how to add some."""
    counts = re.findall(r"with_global_tokens\((\d+)\)", named.code)
    if counts:
        whose = "the tokens'"
        if counts[0] == "1":
            whose = "the token's"
        return [f"``x`` then has N + {counts[0]} rows for a graph of N nodes, {whose} first.", ""]
    if named.family != "grid" or not graph_of(named).is_square:
        return []
    method = "graphattn.AttentionGraph.with_global_tokens"
    lines = ["A token in front that reads all and is read by all is one call more,"]
    lines += [f":meth:`graph.with_global_tokens(1) <{method}>`; ``x`` then has N + 1 rows, the"]
    example = f":doc:`class token <{slug(catalogue()['class token'])}>`"
    return [*lines, f"token's first, as in {example}.", ""]


def _before(named: Named) -> Named:
    """The pattern before it in the catalogue whose line needs no other."""
    patterns = list(catalogue().values())
    place = patterns.index(named)
    return next(each for each in patterns[place - 1 :: -1] if not _ELLIPTIC.match(each.line))


def _alike(named: Named) -> list[Named]:
    """Other patterns of the same paper, then those of the same builders, the closest first."""
    others = [each for each in catalogue().values() if each.name != named.name]
    same_paper = [each for each in others if named.source and each.source == named.source]
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
    if named.also:
        lines += ["", f"Also looked for as: {named.also}."]
    if named.source:
        lines += ["", f"From {named.source}: {named.source.link}"]
    if drawn:
        picture = pictures(named, _WIDTH, _HEIGHT, _MASK)
        note = f"Left the mask: {_MASK_SHOWS} Right the graph: {_drawing(named)}"
        lines += ["", ".. raw:: html", "", f'   <div class="pattern">{picture}</div>', "", note]
    code = textwrap.indent(call(named), "   ")
    lines += ["", ".. code-block:: python", "", code, ""]
    lines += [f'The same graph is ``ga.graphs.zoo()["{named.name}"].graph()``, and']
    lines += [f"``graphattn show '{named.name}'`` on the command line.", ""]
    lines += ["At this size", "------------", "", ".. list-table::", "   :widths: 1 3", ""]
    for name, value in facts(named).items():
        lines += [f"   * - {name}", f"     - {value}"]
    lines += ["", "Its builders", "------------", ""]
    called = {
        f"func:`~graphattn.graphs.{name}`": getattr(ga.graphs, name) for name in builders(named)
    }
    for name in methods(named):
        called[f"meth:`~graphattn.AttentionGraph.{name}`"] = getattr(ga.AttentionGraph, name)
    for role, function in called.items():
        summary = (inspect.getdoc(function) or "").split("\n\n")[0]
        lines += [f":{role}", f"   {' '.join(summary.split())}", ""]
    lines += _tokens_in_front(named)
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
    """All patterns by family, each a card that leads to its page, and a field that finds some."""
    patterns = list(patterns)
    lines = ["# Patterns", "", f"The {len(patterns)} patterns that the library names, by family."]
    lines += ["Left the mask: targets are rows, sources are columns, dark where a target reads a"]
    lines += ["source. Right the graph where its nodes live, whole, or the sources of one or two"]
    lines += ["marked targets. Arcs above a line read earlier nodes and below it later ones; of"]
    lines += ["two rows the targets are above."]
    if drawn:
        lines += ["", "```{raw} html", *_FILTER, "```"]
    for family, members in groupby(patterns, lambda named: named.family):
        named = list(members)
        lines += ["", f"## {family.capitalize()} ({len(named)})"]
        if drawn:
            cards = [f"<a {_attributes(each)}>{card(each)}</a>" for each in named]
            lines += ["", "```{raw} html", '<div class="patterns">', *cards, "</div>", "```"]
    entries = [f"patterns/{slug(each)}" for each in patterns]
    lines += ["", "```{toctree}", ":hidden:", "", *entries, "```"]
    return "\n".join(lines) + "\n"


def _attributes(named: Named) -> str:
    """Where a card leads, and the words that find it beside those that it shows."""
    words = [named.family, named.also, *builders(named), *methods(named)]
    graph = graph_of(named)
    if graph.is_square and graph.is_causal:
        words.append("causal")
    text = escape(" ".join(filter(None, words)), quote=True)
    return f'href="patterns/{slug(named)}.html" data-words="{text}"'

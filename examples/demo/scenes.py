"""The scenes. To add one, write a small function that returns a Scene; its docstring and its lines
go on the page.
"""

import networkx as nx
import torch
from inputs import digit, one_hot, terrain, zen_of_python
from scene import Scene, scene

import graphattn as ga

TALLER = torch.tensor([1.0, 1.0, 5.0])  # in the pictures


@scene("A mesh attends along its own edges")
def terrain_mesh() -> Scene:
    """A ridge in Tennessee as a triangle mesh, from the elevation raster that matplotlib carries. A
    vertex reads the vertices that are one or two steps away on the surface, however far or near
    they are in space. Heights are drawn five times too tall."""
    pos, faces = terrain(step=8)
    graph = ga.graphs.mesh_vertices(faces, hops=2)
    claim = graph.equals(ga.graphs.mesh_vertices(faces).k_hop(2))
    look = {"pos": pos * TALLER, "faces": faces}
    return Scene(graph, pos, claim, target=1415, look=look)


@scene("A point cloud needs no faces: its nearest neighbours are the graph")
def terrain_cloud() -> Scene:
    """The same vertices with their triangles forgotten. Each point reads the sixteen points nearest
    to it in space, itself not counted: exactly sixteen, whatever the density. Where several are
    equally far the lowest index wins, so that the graph does not depend on how the search was
    done."""
    pos, _ = terrain(step=8)
    graph = ga.graphs.knn(pos, k=16)
    claim = bool((graph.in_degree == 16).all())
    return Scene(graph, pos, claim, target=1415, look={"pos": pos * TALLER})


@scene("A pixel reads its neighbourhood, and the border does not shrink it")
def digit_neighbourhood() -> Scene:
    """A handwritten digit of 8 × 8 pixels. Each pixel reads the 3 × 5 window around it. At the
    border the window moves inwards, as in neighbourhood attention, so that every pixel reads itself
    and fourteen others, and a corner knows as much as the middle. The graph is a rule: no edge is
    stored."""
    image = digit()
    graph = ga.graphs.grid_neighbourhood((8, 8), kernel=(3, 5), causal=False)
    claim = graph.is_rule and bool((graph.in_degree == 15).all())
    return Scene(
        graph, image.reshape(-1, 1), claim, target=0, look={"image": image}, highlight=[0, 28, 62]
    )


@scene("A Swin layer is a set of disjoint cliques")
def digit_cells() -> Scene:
    """The same digit cut into cells of 4 × 4, shifted by two. Inside a cell every pixel reads
    itself and every other; between cells nothing passes. The usual implementation rolls the image
    and masks what wrapped round; here the border cells are simply smaller. The proof that these are
    cliques, and disjoint: every edge runs both ways, and a second layer reaches no further than the
    first."""
    image = digit()
    graph = ga.graphs.window_partition((8, 8), cell=(4, 4), shift=(2, 2))
    claim = graph.equals(graph.reverse()) and graph.equals(graph @ graph)
    return Scene(graph, image.reshape(-1, 1), claim, target=27, look={"image": image})


@scene("A causal decoder is a directed acyclic graph")
def zen_of_python_text() -> Scene:
    """The Zen of Python, read from the file that Python ships, cut into words and stops, which are
    the tokens. A token reads itself and every earlier one: apart from the self-loops this is a
    complete acyclic graph. All tokens are run and verified; the first twenty are drawn."""
    words = zen_of_python()
    graph = ga.graphs.causal(len(words))
    loopless = graph.without_self_loops()
    claim = nx.is_directed_acyclic_graph(ga.convert.to_networkx(loopless))
    return Scene(
        graph,
        one_hot(words),
        claim,
        target=19,
        look={"tokens": words},
        highlight=[12, 19],
        first=20,
    )


@scene("A social network is an attention mask already")
def les_miserables() -> Scene:
    """Who appears with whom in Victor Hugo's novel: 77 people, from networkx. Meeting goes both
    ways, so each pair becomes two edges; and a person reads itself too, which no social network
    says, so it is written out."""
    people = nx.les_miserables_graph()
    met = ga.from_networkx(people, name="Les Misérables")
    graph = met.with_self_loops()
    adjacency = torch.from_numpy(nx.to_numpy_array(people) > 0)
    claim = torch.equal(met.mask(), adjacency)
    names = list(people)
    look = {"tokens": names, "layout": "network"}
    chosen = list(map(names.index, ("Fantine", "Gavroche", "Myriel")))
    return Scene(graph, torch.eye(len(names)), claim, target=chosen[0], look=look, highlight=chosen)


@scene("Cross-attention is a bipartite graph")
def two_clouds() -> Scene:
    """Two samplings of the same ridge: a fine cloud, which is read, and a coarse one, whose points
    fall between those of the fine one and read the eight nearest of them. This is how a network on
    point clouds passes from one resolution to the next, and why sources and targets are two sets of
    nodes here."""
    fine, _ = terrain(step=8)
    coarse, _ = terrain(step=20)
    graph = ga.graphs.knn(fine, k=8, queries=coarse)
    claim = graph.mask().shape == (len(coarse), len(fine)) and bool((graph.in_degree == 8).all())
    look = {"pos": fine * TALLER, "queries": coarse * TALLER}
    return Scene(graph, coarse, claim, target=226, look=look, context=fine)

"""Expressions of builders as text, and the zoo of named patterns."""

import math
from collections.abc import Mapping

import pytest
import torch

from graphattn import graphs
from graphattn.errors import GraphAttnError
from graphattn.graphs.expression import Deferred, from_expression, signature_of

CASES = {
    "causal(6)": lambda g: g.causal(6),
    "sliding_window(9, 3, causal=False) | global_tokens(9, (0, 4))": lambda g: (
        g.sliding_window(9, 3, causal=False) | g.global_tokens(9, (0, 4))
    ),
    " ~(causal(4) - self_loops(4)) & full(4) ": lambda g: (
        ~(g.causal(4) - g.self_loops(4)) & g.full(4)
    ),
    "causal(5) @ sliding_window(5, 2, causal=True)": lambda g: (
        g.causal(5) @ g.sliding_window(5, 2, causal=True)
    ),
    "sliding_window(5, 2, causal=True).k_hop(2).reverse()": lambda g: (
        g.sliding_window(5, 2, causal=True).k_hop(2).reverse()
    ),
    "causal(3, 5, align='start')": lambda g: g.causal(3, 5, align="start"),
    "karate - karate.reverse()": lambda g: ~g.full(34),
    "line_graph(full(2))": lambda g: g.line_graph(g.full(2)),
    "full(4).subgraph([2, 0])": lambda g: g.full(2),
    "block_sparse(full(2) - self_loops(2), 3)": lambda g: ~g.block_local(6, 3, causal=False),
    "composite([[causal(3), None], [cross(2, 3), full(2)]])": lambda g: g.composite(
        [[g.causal(3), None], [g.cross(2, 3), g.full(2)]]
    ),
    "window_partition((4, 6), (2, 3))": lambda g: g.window_partition((4, 6), (2, 3)),
    "grid_ball((4, 6), 2, p=inf)": lambda g: g.grid_ball((4, 6), 2, p=math.inf),
}


@pytest.mark.parametrize("text", CASES)
def test_expressions_give_what_python_gives(text):
    assert from_expression(text).equals(CASES[text](graphs))


def test_dots_leave_the_size_open():
    longformer = from_expression(
        "~(sliding_window(..., 3, causal=True) | global_tokens(..., (0,)))"
    )
    assert (
        str(longformer.expression)
        == "~(sliding_window(..., 3, causal=True) | global_tokens(..., (0,)))"
    )
    assert longformer(7).equals(
        ~(graphs.sliding_window(7, 3, causal=True) | graphs.global_tokens(7, (0,)))
    )


class Thing(Deferred):
    """Three nodes where a graph belongs, 5 as a number of nodes."""

    def graph(self):
        return graphs.causal(3)

    def arguments(self, name, function):
        return (
            {"num_targets": 5, "window": 2}
            if name == "num_targets"
            else {name: torch.tensor([0, 1, 0])}
        )


@pytest.mark.parametrize(
    ("text", "graph"),
    [
        ("thing()", graphs.causal(3)),
        ("~thing() | full(3)", graphs.full(3)),
        ("thing().reverse()", graphs.causal(3).reverse()),
        ("line_graph(thing())", graphs.line_graph(graphs.causal(3))),
        (
            "random_neighbours(3, 1, avoid=thing())",
            graphs.random_neighbours(3, 1, avoid=graphs.causal(3)),
        ),
        (
            "disjoint_union([thing(), full(2)])",
            from_expression("disjoint_union([causal(3), full(2)])"),
        ),
        ("clusters(thing())", graphs.clusters(torch.tensor([0, 1, 0]))),
        (
            "sliding_window(thing(), window=3, causal=True)",
            graphs.sliding_window(5, 3, causal=True),
        ),
    ],
)
def test_a_deferred_value_is_what_its_argument_needs(text, graph):
    assert from_expression(text, {"thing": Thing}).equals(graph)


def test_signatures_name_types_shortly():
    assert signature_of(graphs.knn).startswith(
        "(pos: Tensor, k: int, *, dilation: int = 1, queries: Tensor | None"
    )
    assert signature_of(graphs.block_sparse).startswith("(layout: AttentionGraph, block: int")
    assert signature_of(graphs.causal).endswith("*, align: Literal['end', 'start'] = 'end')")


def test_a_builder_without_memory_is_not_called_nested(monkeypatch):
    def huge():
        raise MemoryError

    with pytest.raises(MemoryError):
        from_expression("huge()", {"huge": huge})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "swin((8, 8), 4)",
            r"no builder is called swin; the zoo's Swin is window_partition\(\(8, 8\), 4\)",
        ),
        ("window(8, 3)", r"did you mean sliding_window\(num_targets: int, window: int"),
        (
            "sliding_window(8, causal=True)",
            r"missing a required argument: 'window'; the call is sliding_window\(num_targets: int",
        ),
        ("causal(..., align=...)", "stands for the sizes"),
        ("causal(...).subgraph([0])", "only a graph has subgraph"),
        ("full(\udcff)", "it holds bytes that are not text"),
        ("knn(sphere, k=few)", "few does not belong .* words stand in quotes, and a file"),
        ("full(6", "is not an expression"),
        ("", "is not an expression"),
        ("full", "full does not belong"),
        ("3", "must give a graph, got 3"),
        ("fixed(8, 2)", r"no builder is called fixed; it is graphattn\.graphs\.sparse_fixed"),
        ("ful(3)", "no builder is called ful; did you mean full"),
        ("__import__('os')", "no builder is called __import__"),
        ("full(3).edge_index", "does not belong"),
        ("full(3).materialise()", "neither a builder nor a method"),
        ("full(3).edges.count()", "neither a builder nor a method"),
        ("(3).reverse()", "only a graph has reverse"),
        ("full(3) | 3", r"\| joins two AttentionGraphs, got int"),
        ("3 @ 4", "3 @ 4: unsupported operand"),
        ("full(3) + full(3)", "does not belong"),
        ("-full(3)", "- for numbers"),
        ("full(*(3,))", "does not belong"),
        ("full(**{})", "does not belong"),
        ("[full(3) for x in (1,)]", "does not belong"),
        ("full(3, x=2)", "unexpected keyword"),
        ("full(-1)", "num_nodes must be .* got -1"),
        ("full(2).subgraph(7)", r"subgraph: targets must be in \[0, 2\), the nodes, got 7 to 7"),
        (
            "full(num_nodes=3, num_nodes=4)",
            r"full\(num_nodes=3, num_nodes=4\): keyword argument repeated: num_nodes",
        ),
        ("full(**{}, **{})", r"\*\* does not belong"),
        ("~" * 20000 + "full(2)", "nested too deeply|is not an expression"),
    ],
)
def test_what_is_no_expression(text, message):
    with pytest.raises(GraphAttnError, match=message):
        from_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3000,
        "x" * 3000 + "(1)",
        "'" + "x" * 3000 + "'",
        "(" * 3000,
        "full(" + "1," * 400 + ")",
    ],
)
def test_a_long_expression_is_not_repeated_whole(text):
    with pytest.raises(GraphAttnError) as error:
        from_expression(text)
    assert text[:60] in str(error.value)
    assert len(str(error.value)) < 500


def test_every_named_pattern_has_a_name_of_its_own_and_builds():
    names = [each.name.lower() for each in graphs.zoo().values()]
    assert len(set(names)) == len(names) == len(graphs.zoo())
    for each in graphs.zoo().values():
        graph = each.graph()
        assert graph.num_edges > 0, each.name
        assert graphs.zoo()[each.name.upper().replace(" ", "-")] is each
        assert each.line
        assert not each.line.endswith(".")
        assert each.family in ("sequence", "grid", "points", "mesh", "network")
    table = str(graphs.zoo())
    assert all(each.name in table and each.line in table for each in graphs.zoo().values())


def test_names_in_brackets_and_parts_of_names():
    zoo = graphs.zoo()
    assert zoo["DiNA"] is zoo["dilated neighborhood (DiNA)"]
    assert "Longformer" in zoo
    assert zoo["BigBird"] in zoo.values()
    assert "Longformr" not in zoo
    with pytest.raises(
        GraphAttnError, match="did you mean 'TimeSformer, time' or 'TimeSformer, space'"
    ):
        zoo["timesformer"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("axial attention", {"axial, rows", "axial, columns", "criss-cross (CCNet)"}),
        ("row column attention", {"axial, rows", "axial, columns", "criss-cross (CCNet)"}),
        ("tree attention", {"speculative tree", "ancestors"}),
        ("nearest neighbors", {"kNN"}),
    ],
)
def test_a_name_that_shares_words_with_others_suggests_these(name, meant):
    with pytest.raises(GraphAttnError) as error:
        graphs.zoo()[name]
    assert all(repr(each) in str(error.value) for each in meant)
    assert "'cross-attention'" not in str(error.value)


def test_the_paper_of_a_pattern_has_a_title_and_an_address():
    patterns = graphs.zoo().values()
    assert all((each.source is not None) == bool(each.paper) for each in patterns)
    sources = [each.source for each in patterns if each.source]
    assert all(source.link.startswith("https://") and source.title for source in sources)
    titles = [graphs.zoo()[name].source.title for name in ("PCT", "LogSparse", "dilated kNN")]
    assert titles[0] == "PCT: Point Cloud Transformer"
    assert titles[1].startswith("Enhancing the Locality")
    assert titles[2].startswith("DeepGCNs")
    assert str(graphs.zoo()["Swin"].source).endswith('Shifted Windows", section 3.2')


def test_the_zoo_is_a_mapping():
    zoo = graphs.zoo()
    assert isinstance(zoo, Mapping)
    assert (
        list(zoo)
        == list(zoo.keys())
        == [each.name for each in zoo.values()]
        == [name for name, _ in zoo.items()]
    )
    assert dict(zoo)["BigBird"] is zoo["bigbird"] is zoo.get(" BIGBIRD")
    assert all(name in zoo and zoo[name].name == name for name in zoo)
    assert zoo.get("longforme") is None
    assert "timesformer" not in zoo  # two are called so
    assert 3 not in zoo
    assert repr(zoo) == f"Zoo of {len(zoo)} patterns: print it for one line each"
    with pytest.raises(KeyError) as error:
        zoo["longforme"]
    assert str(error.value).startswith(
        "no pattern is called 'longforme'; did you mean 'Longformer'"
    )

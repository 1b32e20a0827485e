"""Every result has few lines where a notebook shows it, and all of them by ``print``."""

import ast
import re
import warnings
from html import unescape
from pathlib import Path

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphAttnError, singular
from graphattn.printed import Printed, counted

PACKAGE = Path(ga.__file__).parent
CAUSAL = ga.graphs.causal(9)
RESULTS = {
    "verify": lambda: ga.verify(CAUSAL, dtypes=(torch.float64,), gradients=False),
    "explain": lambda: ga.explain(CAUSAL),
    "audit": lambda: ga.audit(torch.rand(64, 64) < 0.5, ga.graphs.causal(64)),
    "facts": lambda: ga.facts(CAUSAL),
    "facts of layers": lambda: ga.facts([CAUSAL, ga.graphs.full(9)]),
    "leaks": lambda: ga.leaks([ga.graphs.full(9)] * 3),
    "hops": lambda: ga.analysis.hops(CAUSAL),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_a_result_is_few_lines_that_open_to_all(make):
    result = make()
    shown = repr(result)
    every = str(result).splitlines()
    assert 1 <= shown.count("\n") + 1 <= 10
    assert len(shown) <= 1600
    assert shown.splitlines()[0] == every[0]
    assert shown.splitlines()[-1] in (every[-1], every[-1][:157] + "...")
    page = unescape(result._repr_html_())
    assert shown in page
    assert str(result) in page
    assert page.count("<pre>") == page.count("</pre>") == 1 + (shown != str(result))


def test_classes_with_a_text_and_a_document_are_results():
    """Those of a text and ``to_dict``: none shows its fields one after the other."""
    others = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            if "to_dict" in methods and methods & {"__str__", "in_full"}:
                bases = {ast.unparse(base) for base in node.bases}
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "Printed" not in bases or "repr=False" not in decorators:
                    others.append(f"{path.name}: {node.name}")
    assert others == []


def test_long_lines_are_cut_and_left_out_lines_are_counted():
    class Long(Printed):
        def in_full(self):
            return "\n".join([*(f"line {i}" for i in range(20)), "x" * 500])

    lines = repr(Long()).splitlines()
    assert lines == [
        *(f"line {i}" for i in range(8)),
        "... 12 lines more, by print",
        "x" * 157 + "...",
    ]


def test_one_is_no_plural():
    assert counted(1, "layer") == "1 layer"
    assert counted(21_000, "loss") == "21,000 losses"


ONE_NODE = ga.graphs.causal(1)
ONE_EDGE = ga.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)


@pytest.mark.parametrize("graph", [ONE_NODE, ONE_EDGE], ids=["one node", "one edge"])
def test_reports_of_one_node_and_one_edge_have_no_plural_of_one(graph):
    layer = ga.nn.GraphAttention(4, 1)
    shape = graph.num_targets, graph.num_sources
    listed = ga.from_edge_index(graph.edge_index, num_nodes=graph.num_nodes)
    results = [graph, listed, ga.PerHead([graph]), ga.PerExample([graph]), ga.explain(graph)]
    with warnings.catch_warnings(action="error"):  # a search for mistakes warns of none
        masks = torch.zeros(shape).bool(), torch.ones(shape).bool()
        results += [ga.audit(mask, graph) for mask in masks]
    results += [ga.facts(graph), ga.facts([graph]), ga.leaks([graph]), ga.verify(layer, graph)]
    results += [ga.analysis.hops(graph), ga.analysis.receptive_field([graph])]
    results += [ga.analysis.tile_fill(graph), ga.analysis.flops(graph)]
    texts = [text for result in results for text in (str(result), repr(result))]
    with pytest.raises(GraphAttnError) as refused:
        graph | ga.graphs.full(5)
    texts.append(str(refused.value))
    plurals = re.findall(r"(?<![\w.,])1 [a-z]+s\b(?<!ms)", "\n".join(texts))
    assert plurals == []
    assert "1 edge," in texts[0]


def test_one_thing_is_in_the_singular_and_a_name_stays():
    assert singular("1 targets are left, 1 entries differ") == "1 target is left, 1 entry differs"
    assert singular("21 edges, 0.1 seconds, 1 classes") == "21 edges, 0.1 seconds, 1 class"
    for name in ("runs/1 edges.csv", "1 edges.csv", "layer 1 targets", "x=1 nodes_of"):
        assert singular(name) == name

"""What is passed by mistake is answered by what to pass."""

import pytest
import torch
from torch_geometric.data import Data

import graphattn as ga
from graphattn.backends.rows import NAMES
from graphattn.errors import GraphAttnError, ShapeError
from graphattn.nn.normalizers import NORMALIZERS
from graphattn.nn.scores import SCORES

GRAPH, SHAPE = ga.graphs.causal(5), Data(pos=torch.rand(9, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ga.explain(GRAPH, score="adddditive"), "additive, gat, mlp.*; got 'adddditive'"),
        (lambda: ga.explain(GRAPH, normalize="sofmax"), "one of softmax, sink.*; got 'sofmax'"),
        (lambda: ga.graphs.knn(SHAPE, k=3), "for a shape pass pos=shape.pos"),
        (lambda: ga.graphs.knn(..., k=3)(SHAPE), r"pattern\(shape.pos, shape.batch\)"),
        (
            lambda: ga.PerHead((ga.graphs.causal(...),)),
            r"got Pattern; give it a size: pattern\(num_nodes\)",
        ),
    ],
    ids=["score", "normalize", "positions", "a recipe", "heads"],
)
def test_a_mistake_is_answered(call, words):
    with pytest.raises(GraphAttnError, match=words):
        call()


def test_every_name_of_a_layer_may_be_explained():
    assert {"scaled_dot", *SCORES} <= set(NAMES["score"])
    assert {"softmax", *NORMALIZERS} == set(NAMES["normalize"])
    assert all(ga.explain(GRAPH, score=name) for name in NAMES["score"])


@pytest.mark.parametrize(("lead", "axes"), [((2,), "1, 2"), ((), "-3, -2"), ((5, 2), "-3, -2")])
def test_heads_first_are_told_to_be_transposed(lead, axes):
    """As torch's SDPA takes them."""
    x = torch.randn(*lead, 4, 7, 8)
    with pytest.raises(ShapeError, match=rf"pass query\.transpose\({axes}\)"):
        ga.attention(x, x, x, ga.graphs.causal(7))

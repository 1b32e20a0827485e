"""Modes of torch that graphs, and numbers read off them, do not depend on."""

import pytest
import torch
from torch_geometric.data import Data

import graphattn as ga
from graphattn.shapes.augment import RandomRotation

torch.manual_seed(0)
POS, NORMAL = torch.rand(211, 3), torch.nn.functional.normalize(torch.randn(211, 3), dim=1)
QUERY, KEY = torch.randn(2, 83, 6, 11), torch.randn(2, 89, 3, 11)
CENTROIDS = torch.randn(6, 7, 11)
FEATURES_OF_NODES = torch.randn(1511, 11)
NEAR = ga.graphs.knn(POS, 7)
FEATURES, KERNEL = ga.nn.FourierFeatures(3, 13, sigma=5.0), ga.nn.PositiveFeatures(3, 13)


def _turned():
    torch.manual_seed(1)
    turned = RandomRotation()(Data(pos=POS.clone(), normal=NORMAL.clone()))
    return torch.cat((turned.pos, turned.normal))


PRODUCTS = {
    "top_k": lambda: ga.graphs.top_k(..., 8)(83, 89).edges(QUERY, KEY).edge_index,
    "top_k of blocks": lambda: (
        ga.graphs.top_k(..., 3, blocks=5)(83, 89).edges(QUERY, KEY).edge_index
    ),
    "routed": lambda: ga.graphs.routed(FEATURES_OF_NODES, CENTROIDS[0]).edge_index,
    "routed in heads": lambda: (
        ga.graphs.routed(..., CENTROIDS)(83, 89).edges(QUERY, KEY).edge_index
    ),
    "random_walk_pe": lambda: ga.nn.random_walk_pe(NEAR, 11),
    "FourierFeatures": lambda: FEATURES(POS),
    "PositiveFeatures": lambda: KERNEL(POS),
    "vectors in frames": lambda: ga.nn.edge_geometry(
        NEAR, POS, features=("frame",), normals=NORMAL
    ),
    "RandomRotation": _turned,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_that_chooses_or_places_is_computed_in_float32_under_autocast(name):
    with torch.no_grad():
        plain = PRODUCTS[name]()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(PRODUCTS[name](), plain)

"""The layers that are verified on the table of graphs: name -> arguments of a GraphAttention."""

from typing import Any

import torch

from graphattn.nn import GraphAttention

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {"embed_dim": 12, "num_heads": 3},
    "grouped": {
        "embed_dim": 20,
        "num_heads": 4,
        "num_kv_heads": 2,
        "bias": False,
        "root_weight": True,
    },
    "cross": {"embed_dim": 15, "num_heads": 3, "qdim": 7, "kdim": 11, "vdim": 13, "head_dim": 4},
    "edges": {"embed_dim": 14, "num_heads": 2, "edge_dim": 5, "out_proj": False, "dropout": 0.3},
}


def layer_of(name: str) -> GraphAttention:
    """One of the layers; its biases are not zero, where a forgotten one would not be seen."""
    torch.manual_seed(0)
    module = GraphAttention(**LAYERS[name])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.5)
    return module

"""Numbers and flags of every layer and model: what is out of range is refused by name, when it is
built.
"""

import inspect
import math
import typing

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn.errors import GraphAttnError

RING = ga.graphs.circulant(6, (1, 5))
SMALL = {
    "embed_dim": 8,
    "num_heads": 2,
    "head_dim": 4,
    "vocab_size": 11,
    "num_layers": 1,
    "hidden": 8,
    "features": 3,
}
SMALL |= {
    "window": (2, 2),
    "widths": (8, 16),
    "depths": (1, 1),
    "back_widths": (8,),
    "back_depths": 1,
    "windows": (3,),
}
SMALL |= {
    "size": (4, 8),
    "patch": (2, 2),
    "dim": 8,
    "p": 0.1,
    "step": 0.1,
    "factor": 2.0,
    "length": 8,
    "top_k": 1,
}
SMALL |= {"experts": [nn.Linear(8, 8)], "graph": RING, "coupling": 1.0, "feature_map": "elu"}
OWN = {
    "Swin": {"depths": (1, 1), "num_heads": (2, 2)},
    "StratifiedTransformer": {"signals": 3},
}
# a seed of torch's, a row of a table, a factor of either sign
ANY = {"seed", "padding_idx", "scale"}
NONE = {"spectrum", "signals", "num_tokens", "virtual_nodes"}  # may be 0
LAZY = {"qdim", "kdim", "vdim", "edge_dim"}  # may be -1, that of the first call
ALIASES = {
    "axes": "edge_dim",
    "input_dim": "source_dim",
    "rotary": "base",
    "num_decoder_layers": "num_layers",
}
ALIASES |= {"num_layers": "number of layers", "signal_step": "step", "signal_reach": "reach"}
WRONG = {int: (0, -1), float: (math.nan, -1.0)}
BUILT = [
    each
    for room in (ga.nn, ga.models)
    for each in map(vars(room).get, room.__all__)
    if inspect.isclass(each)
]
BUILT = [
    each
    for each in BUILT
    if issubclass(each, nn.Module) and each not in (ga.models.EncoderDecoder, ga.models.Simulator)
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", BUILT, ids=lambda kind: kind.__name__)
def test_numbers_out_of_range_are_refused(kind):
    hints, parameters = typing.get_type_hints(kind.__init__), inspect.signature(kind).parameters
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind != each.VAR_KEYWORD
    ]
    small = {name: SMALL.get(name, 4) for name in needed} | OWN.get(kind.__name__, {})
    with torch.device("meta"):  # no weight is drawn
        kind(**small)
    for name in [name for name in parameters if name not in ANY]:
        plain = [
            each
            for each in typing.get_args(hints[name]) or (hints[name],)
            if each is not type(None)
        ]
        values = WRONG.get(plain[0], ())[name in NONE :] if len(plain) == 1 else ()
        for wrong in values[:1] if name in LAZY else values:
            words = f"({name}|{ALIASES.get(name, name)}).* must be .*, got"
            with torch.device("meta"), pytest.raises(GraphAttnError, match=words):
                kind(**small | {name: wrong})

"""Pickles of graphs, which ``torch.load(weights_only=True)`` can read."""

import copyreg
import json
from typing import Any

import torch
from torch import Tensor

from ...errors import GraphError
from ..deferred.pattern import Pattern
from ..graph import AttentionGraph
from ..kinds.per_example import PerExample
from ..kinds.per_head import PerHead
from ..kinds.relations import Relations
from .read import from_plain, parsed
from .write import to_plain


def reduced(graph: AttentionGraph | Pattern | PerHead | PerExample | Relations) -> Any:
    """A graph as a call of :func:`restored` on plain data, which pickle writes in its place."""
    tensors: list[Tensor] = []
    try:
        data = to_plain(graph, tensors, keep_device=True)
    except GraphError:  # too many intervals: a plain pickle, which weights_only refuses
        return object.__reduce_ex__(graph, 2)
    return restored, (json.dumps(data), tensors)


def restored(text: str, tensors: list[Tensor]) -> Any:
    """The graph of a pickle.

    The only function of graphattn that :func:`torch.load` may call on untrusted data.

    Raises:
        LoaderError: If the data is not a saved graph.
    """
    return from_plain(parsed(text, "pickle"), tensors, where="pickle")


torch.serialization.add_safe_globals([restored])  # torch.load trusts no function by default
copyreg.pickle(AttentionGraph, reduced)
copyreg.pickle(Pattern, reduced)
copyreg.pickle(PerHead, reduced)
copyreg.pickle(PerExample, reduced)
copyreg.pickle(Relations, reduced)

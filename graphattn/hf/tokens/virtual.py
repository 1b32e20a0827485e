"""Virtual tokens of prompt and prefix tuning: nodes before a text that every token reads."""

from dataclasses import replace
from typing import Any

import torch

from ...convert import from_edge_index
from ...errors import GraphError
from ...graph import AttentionGraph, disjoint_union
from ...graph.modes import keep
from ...graphs import causal, global_tokens
from .rows import Graph

_CACHED = ("PREFIX_TUNING", "CARTRIDGE")  # keys and values, not embeddings
_SOURCES_ONLY = ("PROMPT_TUNING", "P_TUNING")  # of an encoder-decoder, before the encoder's text


def virtual_tokens(model: Any) -> dict[str, int]:
    """The number of virtual tokens before the text, by role; empty if a model has none.

    Args:
        model: A model, perhaps of PEFT with an active adapter for prompt learning.
    """
    config = getattr(model, "active_peft_config", None)
    if config is None or not config.is_prompt_learning or model._adapters_disabled:
        return {}
    number = config.num_virtual_tokens
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if kind in _CACHED:
        return {"": number, "decoder": number}
    result = {"": number, "encoder": number}
    if config.num_transformer_submodules == 2 and kind not in _SOURCES_ONLY:
        result["decoder"] = number
    return result


def behind(graph: Graph, targets: int, sources: int, *, is_causal: bool) -> Graph:
    """The graph behind virtual tokens.

    Args:
        graph: The graph of the text.
        targets: Number of virtual tokens among the targets; they read all tokens.
        sources: Number of virtual tokens among the sources; every token reads them.
        is_causal: True if virtual tokens read only themselves and those before them.

    Raises:
        GraphError: If edges are chosen by content, among tokens that would include virtual ones.
    """
    if not targets and not sources:
        return graph
    if not graph._is_fixed:
        raise GraphError(
            f"{graph!r} chooses edges by content, which virtual tokens of prompt or prefix tuning "
            "do not take part in; pass a pattern without a choice, or merge another adapter"
        )
    return graph._map_graphs(lambda one: _behind(one, targets, sources, is_causal))


def _behind(graph: AttentionGraph, targets: int, sources: int, is_causal: bool) -> AttentionGraph:
    key = ("behind", targets, sources, is_causal)
    result: AttentionGraph = keep(
        graph._memo, key, lambda: _with_tokens(graph, targets, sources, is_causal)
    )
    return result


def _with_tokens(
    graph: AttentionGraph, targets: int, sources: int, is_causal: bool
) -> AttentionGraph:
    name = f"{graph.name} behind {sources} virtual tokens"
    if targets == sources and graph.is_square:
        result = disjoint_union([causal(sources), graph])
        size = result.num_nodes
        virtual = global_tokens(size, tuple(range(sources)))
        if is_causal:
            virtual = virtual & causal(size)
        return replace(result | virtual, name=name)
    T = graph.num_targets + targets
    S = graph.num_sources + sources
    mask = torch.zeros(T, S, dtype=torch.bool)
    mask[:targets] = True
    mask[:, :sources] = True
    source, target = graph.edge_index.cpu() + torch.tensor([[sources], [targets]])
    mask[target, source] = True
    index = mask.nonzero().flip(1).T
    return from_edge_index(index, num_sources=S, num_targets=T, name=name)

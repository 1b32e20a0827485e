"""Argument names of other libraries, and the names or calls to use here instead."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import ArgumentNameError

P = ParamSpec("P")
R = TypeVar("R")

_UNION = "graphattn.disjoint_union of a graph for each example joins examples without their padding"
_LAYER = "an argument of the constructor of the layer or model"
#: Names -> advice by an argument that it needs; the first advice whose argument the function takes
#: is given.
_WAYS: dict[str, dict[str, str]] = {
    "attn_mask mask src_mask tgt_mask memory_mask source_mask target_mask": {
        "": "a mask is a graph: graphattn.from_mask(mask) where True is an edge, "
        'kind="mha" where True hides one (nn.MultiheadAttention), '
        'kind="additive" where 0 is an edge and -inf none'
    },
    "attention_mask key_padding_mask src_key_padding_mask memory_key_padding_mask padding_mask": {
        "lengths": "padding at the end is lengths=, integers (batch,): attention_mask.sum(-1), or "
        "(~key_padding_mask).sum(-1) where True hides",
        "score_bias": "-inf in score_bias (batch, E, 1) takes away the edges from padding, and "
        "graphattn.disjoint_union of a graph for each example computes less",
        "tokens": _UNION + ", or pass them one by one",
        "": _UNION,
    },
    "is_causal causal": {
        "": "causality is a graph: graphattn.graphs.causal(num_nodes), or causal(...) of any size"
    },
    "window_size sliding_window local_window_size window": {
        "": "a window is a graph: graphattn.graphs.sliding_window(num_targets, window, causal=True), which "
        "counts the token itself; FlashAttention's window_size=(left, right) is window=(left, right), "
        "without causal"
    },
    "cu_seqlens cu_seqlens_q cu_seqlens_k max_seqlen max_seqlen_q max_seqlen_k": {
        "": "packed examples are a graph: graphattn.graphs.documents(ids, causal=False) with the number of each "
        "token's example, torch.repeat_interleave(torch.arange(B), cu_seqlens.diff()); "
        "& graphattn.graphs.causal(N) for a decoder"
    },
    "block_mask": {"": "a BlockMask is a graph: graphattn.convert.from_block_mask(block_mask)"},
    "mask_mod": {
        "": (
            "a mask_mod is a graph: graphattn.convert.from_mask_mod(mask_mod, num_targets, "
            "num_sources)"
        )
    },
    "score_mod": {
        "score_bias": (
            "score_bias adds a term to the score of each edge; other functions are "
            "GraphAttention(score=...)"
        ),
        "": "other scores are " + _LAYER,
    },
    "attn_bias attention_bias position_bias bias edge_weight": {
        "score_bias": "a bias of scores is score_bias, in the order of the graph's edges: "
        "attn_bias[..., graph.target, graph.source]",
        "": "a bias is " + _LAYER,
    },
    "alibi_slopes": {
        "caches": "ALiBi is score_bias=graphattn.nn.ALiBi(num_heads)",
        "score_bias": "ALiBi is score_bias=graphattn.nn.ALiBi(num_heads)(graph)",
        "": "ALiBi is " + _LAYER,
    },
    "enable_gqa": {
        "": "it needs no flag: fewer heads of key and value are shared by groups of query heads"
    },
    "softmax_scale sm_scale": {"scale": "it is called scale", "": "scale is " + _LAYER},
    "scale softcap": {"": _LAYER},
    "logit_cap logits_soft_cap soft_cap": {
        "softcap": "it is called softcap",
        "": "softcap is " + _LAYER,
    },
    "dropout dropout_p attn_dropout attention_dropout": {
        "dropout_p": "it is called dropout_p",
        "": f"dropout is {_LAYER}; .train() and .eval() turn it on and off",
    },
    "need_weights average_attn_weights output_attentions return_attention_weights return_attn_probs": {
        "return_weights": "weights of edges come with return_weights=True",
        "": "graphattn.analysis.record_weights(model) records the weights of every layer",
    },
    "past_key_values past_key_value layer_past kv_cache use_cache": {
        "caches": "keys of earlier tokens are kept in caches=model.begin(batch, length) of a "
        "model, or a graphattn.nn.KeyValueCache() for each layer",
        "cache": "keys of earlier tokens are kept in cache=graphattn.nn.KeyValueCache()",
        "": "graphattn.models.generate keeps the keys of earlier tokens",
    },
    "query q": {"x": "the input of the queries is x"},
    "key value k v encoder_hidden_states kv": {
        "context": (
            "the input of keys and values is context=, or a pair, one for keys and one for values"
        ),
        "memory": "the output of another stack is memory",
    },
    "hidden_states src inputs_embeds": {"x": "it is called x", "source": "it is called source"},
    "tgt decoder_input_ids": {"target": "it is called target"},
    "input_ids": {"tokens": "it is called tokens", "source": "it is called source"},
    "input_features": {"sound": "it is called sound"},
    "pixel_values": {
        "pixels": "it is called pixels",
        "images": "it is called images",
        "videos": "it is called videos",
    },
    "position_ids": {"positions": "it is called positions", "": "nodes count from 0"},
    "token_type_ids": {"types": "it is called types"},
    "edge_index adj adj_t": {
        "graph": "pass graph=graphattn.from_edge_index(edge_index, num_nodes=N)"
    },
    "labels": {
        "": "compute the loss from the result, torch.nn.functional.cross_entropy(logits, labels)"
    },
    "eos_token_id": {"eos": "it is called eos"},
    "device dtype": {
        "embed_dim": "call .to(device, dtype) on the module, or make it under torch.device(device)"
    },
    "batch_first": {"embed_dim": "it needs no flag: tensors are (batch, nodes, width)"},
    "do_sample": {"strategy": 'it is strategy="sample"'},
    "max_length": {"max_new_tokens": "give max_new_tokens, without the prompt"},
}
_BY_NAME = {name: ways for names, ways in _WAYS.items() for name in names.split()}


def names_checked(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: an unknown argument raises an error with the name or the call to use instead.

    Example:
        >>> @names_checked
        ... def attend(query: int, graph: int) -> int:
        ...     return query
        >>> attend(1, 2, is_causal=True)
        Traceback (most recent call last):
        graphattn.errors.ArgumentNameError: attend takes no argument 'is_causal': causality is a graph: \
graphattn.graphs.causal(num_nodes), or causal(...) of any size. It takes query, graph
    """
    parameters = tuple(name for name in inspect.signature(function).parameters if name != "self")
    names = frozenset(parameters)

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        if not names.issuperset(options):
            name = next(name for name in options if name not in names)
            call = function.__qualname__.removesuffix(".forward").removesuffix(".__init__")
            raise ArgumentNameError(_unknown(call, name, parameters))
        return function(*args, **options)

    # torch.compile counts programs by code, of which decorated functions would share one
    code = checked.__code__  # type: ignore[attr-defined]
    checked.__code__ = code.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return checked


def _unknown(call: str, name: str, parameters: tuple[str, ...]) -> str:
    """The message for an unknown argument ``name``."""
    advice = "."
    for close in get_close_matches(name, parameters, 1):
        advice = f": did you mean {close!r}?"
    for needs, way in _BY_NAME.get(name, {}).items():
        if needs in ("", *parameters):
            advice = f": {way}."
            break
    return f"{call} takes no argument {name!r}{advice} It takes {', '.join(parameters)}"

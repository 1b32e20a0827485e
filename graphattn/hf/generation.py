"""``generate`` of a patched model: its graph is that of the whole sequence, and must not read
unwritten tokens.
"""

import inspect
from functools import wraps
from types import MethodType
from typing import Any

from torch import nn

from ..errors import OptionError
from ..graph import AttentionGraph, PerHead
from ..graphs import causal
from ..models.generation.continuation import first_nodes, refuse_leaks
from .graph_option import sized
from .ticket import Generation
from .tokens.prepared import keep_inputs, leave_cache
from .tokens.virtual import virtual_tokens

_HOOKED = ("generate", "_prepare_generated_length", "_prepare_cache_for_generation")
_PREPARES = "prepare_inputs_for_generation"
_CONTINUOUS = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")


def hook(model: nn.Module, patch: Any) -> None:
    """Wrap ``generate`` of the model, and of models in it, to record the final length for the
    patch.
    """
    for part in model.modules():
        if hasattr(type(part), _PREPARES):
            part._graphattn_patch = patch
            prepared = _prepared_inputs(getattr(type(part), _PREPARES))
            setattr(part, _PREPARES, MethodType(prepared, part))
        if all(hasattr(type(part), name) for name in _HOOKED):
            part._graphattn_patch = patch
            for name, method in zip(
                _HOOKED, (_generate, _prepared_length, _prepared_cache), strict=True
            ):
                setattr(part, name, MethodType(method, part))
        for name in _CONTINUOUS:
            if hasattr(type(part), name):
                setattr(part, name, _no_continuous_batching)


def unhook(part: nn.Module) -> None:
    for name in (*_HOOKED, _PREPARES, *_CONTINUOUS, "_graphattn_patch"):
        part.__dict__.pop(name, None)


def _no_continuous_batching(*_: Any, **__: Any) -> Any:
    raise OptionError(
        "continuous batching packs the tokens of all requests into one row of a paged cache, "
        "which graphs do not run "
        "on; call generate with padded prompts, or ga.unpatch(model) first"
    )


def _generate(self: Any, *args: Any, **options: Any) -> Any:
    patch = self._graphattn_patch
    patch.forget()  # a call that was interrupted
    before = patch.running.generation
    generation = Generation(
        virtual=_virtual_tokens(self), makes_positions=options.get("position_ids") is None
    )
    patch.running.generation = generation
    try:
        return type(self).generate(self, *args, **options)
    finally:
        for cache in generation.caches:
            leave_cache(cache)
        patch.running.generation = before  # of the generate that called this one for drafts


def _prepared_inputs(method: Any) -> Any:
    """The preparation of a call by ``generate``, which keeps inputs of functions of the batch."""

    first = list(inspect.signature(method).parameters)[1]

    @wraps(method)
    def prepared(self: Any, *args: Any, **options: Any) -> Any:
        patch = self._graphattn_patch
        if patch.reads_batch:
            further = dict(options)
            if args:
                tokens = args[0]
            else:
                tokens = further.pop(first)
            keep_inputs(self, patch, tokens, further)
        return method(self, *args, **options)

    return prepared


def _virtual_tokens(model: Any) -> dict[str, int]:
    """Virtual tokens of the adapter around a model, which prepares its inputs."""
    around = getattr(model.prepare_inputs_for_generation, "__self__", model)
    result = virtual_tokens(around)
    patch = model._graphattn_patch
    if result and all(part is not around for part in patch.model.modules()):
        raise OptionError(
            f"the adapter around the patched model has {max(result.values())} virtual tokens, "
            "which are not patched; patch the model of PEFT in place of the model in it: "
            "ga.patch(peft_model, graph)"
        )
    return result


def _prepared_length(self: Any, *args: Any, **options: Any) -> Any:
    config = type(self)._prepare_generated_length(self, *args, **options)
    prompt = options["input_ids_length"]
    length = config.max_length
    generation = self._graphattn_patch.running.generation
    generation.prompt_ids = prompt
    if self.config.is_encoder_decoder:
        generation.encoded = {options["model_input_name"]: options["inputs_tensor"]}
    elif options["model_input_name"] == "inputs_embeds":
        before = options["inputs_tensor"].shape[1] - prompt
        prompt = prompt + before
        length = length + before
    check_leaks(self._graphattn_patch, prompt, length)
    generation.prompt = prompt
    generation.length = length
    return config


def _prepared_cache(
    self: Any,
    config: Any,
    inputs: dict[str, Any],
    mode: Any,
    batch_size: int,
    max_cache_length: int,
) -> Any:
    """A cache of all tokens if there is a graph, which may read beyond the model's own window."""
    from transformers import cache_utils as caches

    past = inputs.get("past_key_values")
    result = type(self)._prepare_cache_for_generation(
        self, config, inputs, mode, batch_size, max_cache_length
    )
    if all(_reads_as_before(slot) for slot in writers(self._graphattn_patch)):
        return result
    cache: Any = inputs.get("past_key_values")
    cache = getattr(cache, "self_attention_cache", cache)  # of an encoder-decoder
    if past is None and hasattr(cache, "layers"):
        for i, layer in enumerate(cache.layers):
            if type(layer) is caches.DynamicSlidingWindowLayer:
                cache.layers[i] = caches.DynamicLayer()
            elif type(layer) is caches.StaticSlidingWindowLayer:
                cache.layers[i] = caches.StaticLayer(max_cache_len=max_cache_length)
    return result


def check_leaks(patch: Any, prompt: int, length: int) -> None:
    """Refuse graphs in which a token depends on one that is written after it is computed."""
    slots = writers(patch)
    if not any(_is_sized(slot) for slot in slots):
        return
    layers = [_first(_graph(slot, length), length) for slot in slots]
    refuse_leaks(layers, prompt, length)


def writers(patch: Any) -> list[Any]:
    """The slots of layers that write text."""
    slots = patch.slots.values()
    return [slot for slot in slots if slot.place.role in ("", "decoder") and slot.is_causal]


def _reads_as_before(slot: Any) -> bool:
    """True if a layer keeps the model's own connectivity."""
    return slot.graph is None or isinstance(slot.graph, str)


def _is_sized(slot: Any) -> bool:
    """True if the graph of the whole sequence is known at its start."""
    return not (_reads_as_before(slot) or slot.inputs)


def _graph(slot: Any, length: int) -> AttentionGraph | PerHead:
    """The graph of the whole sequence; those of functions of the batch are checked step by step."""
    if not _is_sized(slot):
        return causal(length)
    graph: Any = sized(slot.graph, length)
    if graph._is_fixed:
        return graph
    return graph.union()


def _first(graph: AttentionGraph | PerHead, length: int) -> AttentionGraph | PerHead:
    return graph._map_graphs(lambda one: first_nodes(one, length))

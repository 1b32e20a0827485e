"""Inputs of all tokens so far, which ``generate`` has when it prepares a call with the new ones."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ...errors import OptionError
from ..ticket import Generation

_NAMES = (
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "token_type_ids",
    "mm_token_type_ids",
    "moe_mm_token_type_ids",
)
#: Inputs with a value for each token, which grow with the text.
BY_TOKEN = frozenset([*_NAMES, *(f"decoder_{name}" for name in _NAMES)])


def keep_inputs(model: Any, patch: Any, tokens: Tensor, options: dict[str, Any]) -> None:
    """Keep the inputs of functions of the batch for the call that ``generate`` prepares.

    Args:
        model: The model that generates.
        patch: Its patch.
        tokens: int64 (B, n), the tokens so far, or those of a part of the prompt.
        options: The further arguments of ``prepare_inputs_for_generation``.

    Raises:
        OptionError: If an input of a function lacks the first tokens.
    """
    generation: Generation = patch.running.generation
    prefix = ""
    if model.config.is_encoder_decoder:
        prefix = "decoder_"
    total = _number(generation, tokens, options, prefix)
    arguments = options | generation.of_encoder(len(tokens))
    arguments[f"{prefix}input_ids"] = tokens
    if arguments.get(f"{prefix}attention_mask") is None:  # generate drops one without padding
        arguments[f"{prefix}attention_mask"] = tokens.new_ones(len(tokens), total)
    if "inputs_embeds" in patch.batch_inputs and options.get("inputs_embeds") is not None:
        embeddings = options["inputs_embeds"]
        written = tokens[:, generation.prompt_ids :]
        if written.shape[1]:
            written_embeddings = model.get_input_embeddings()(written)
            embeddings = torch.cat((embeddings, written_embeddings), 1)
        arguments["inputs_embeds"] = embeddings
    before = generation.inputs
    inputs = {}
    for name in patch.batch_inputs:
        value = arguments.get(name)
        if name in BY_TOKEN and name.startswith(prefix) and value is not None:
            value = _all(name, value, before.get(name), total)
            if value is None:
                raise OptionError(
                    f"the graph is a function of {name}, which generate has of "
                    f"{arguments[name].shape[-1]} of {total} tokens; pass {name} of all of them, "
                    "also of those in the cache or given as embeddings"
                )
        if value is not None:
            inputs[name] = value
    name = f"{prefix}input_ids"
    generation.ids = _all(name, tokens, generation.ids, total)
    generation.inputs = inputs
    generation.is_prepared = True


def _number(generation: Generation, tokens: Tensor, options: dict[str, Any], prefix: str) -> int:
    """The number of tokens so far: those in the cache, and those of the call."""
    cache: Any = options.get("past_key_values")
    num_cached = 0
    if hasattr(cache, "get_seq_length") and options.get("use_cache", True):
        virtual = generation.virtual.get(prefix.rstrip("_"), 0)
        num_cached = max(int(cache.get_seq_length()) - virtual, 0)
    new = options.get("next_sequence_length")
    if new is not None:
        return num_cached + int(new)
    embeddings = options.get("inputs_embeds")
    if embeddings is not None and options.get("is_first_iteration") and not prefix:
        return num_cached + int(embeddings.shape[1])
    return num_cached + tokens.shape[1]


def _all(name: str, value: Tensor, before: Tensor | None, total: int) -> Tensor | None:
    """An input of all tokens: as it is, or behind those of a call before; ``None`` if neither
    fits.
    """
    axis = -1
    if name.endswith("embeds"):
        axis = -2
    if value.shape[axis] == total:
        return value
    if before is not None and before.shape[axis] + value.shape[axis] == total:
        return torch.cat((before, value), axis)
    return None


def follow_beams(cache: Any, written: dict[Any, Any]) -> None:
    """Let the graphs that were recorded for a cache be reordered with it."""

    def reorder_cache(self: Any, beam_idx: Tensor) -> None:
        type(self).reorder_cache(self, beam_idx)
        for key, record in written.items():
            written[key] = record.reordered(beam_idx)

    if hasattr(type(cache), "reorder_cache"):
        cache.reorder_cache = MethodType(reorder_cache, cache)


def leave_cache(cache: Any) -> None:
    """Undo :func:`follow_beams`."""
    getattr(cache, "__dict__", {}).pop("reorder_cache", None)

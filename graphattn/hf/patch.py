"""Patching: a model of transformers whose attention reads along graphs, and the way back."""

import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from torch import nn

from ..arguments import refuse_class
from ..errors import OptionError, need_extra
from . import generation, saving
from .attend import attend
from .given import by_module, reads_batch
from .masks import mask_of
from .modules import attention_modules
from .state import Patch, Slot

_NUMBERS = count(1)


def patch(model: nn.Module, graph: Any) -> Patch:
    """Let the attention of a Hugging Face model run on a graph, in place.

    What is behind transformers' attention interface keeps its weights, biases, caches, ``generate`` and trainer; only
    what a token reads is the graph's: it replaces the model's own causal, sliding or chunked mask. A sequence's nodes
    are its tokens, so padding on either side, packed sequences (position ids that start again) and a cache change
    nothing: a shorter sequence reads along the first nodes of a graph, or along the pattern in its size. A 4-D mask of
    the caller's, and relative biases, are added to the scores. A token without edges gets 0.

    With ``output_attentions=True`` the model returns :class:`EdgeWeights` of each layer, (B, E, H); ``dense()`` of one
    is (B, H, T, S). ``save_pretrained`` keeps the graph in the configuration.

    Args:
        model: Any model of ``transformers`` that is behind its attention interface; also one in a PEFT adapter.
        graph: An :class:`AttentionGraph`, :class:`Pattern` or :class:`PerHead` for all layers; or a list with one for
            each layer; or a dict of them by layer, role ("encoder", "decoder", "cross") or name of a stack, whose
            other layers stay as they are; or a function of the length, or of inputs of the model that it names
            (``lambda input_ids, attention_mask: ...``), that returns a graph, or a list of one for each example;
            "model" for the model's own connectivity, as graphs; "saved" for what its configuration holds.

    Returns:
        A :class:`Patch`: print it; ``layers(length)`` gives the layers' graphs.

    Raises:
        OptionError: If the model, or a layer that is named, is not behind the interface; the message says what can be
            done.
        GraphError: If a graph does not fit; in ``generate``, if one leaks (with the path).

    Example:
        >>> import transformers, graphattn as ga
        >>> config = transformers.GPT2Config(vocab_size=11, n_embd=8, n_head=2, n_layer=2, n_positions=32)
        >>> model = transformers.GPT2LMHeadModel(config)
        >>> ga.patch(model, ga.graphs.sliding_window(..., 4))
        Patch(GPT2LMHeadModel: transformer.h.attn x 2 on sliding_window(..., 4))
        >>> ga.unpatch(model)
    """
    try:
        from transformers.masking_utils import AttentionMaskInterface
        from transformers.modeling_utils import AttentionInterface
    except ImportError:
        raise need_extra("transformers", "hf") from None
    refuse_class(model, "model")
    if not isinstance(model, nn.Module):
        raise OptionError(f"model must be a model of transformers, got {type(model).__name__}")
    modules = attention_modules(model)
    given = saving.saved_in(model) if isinstance(graph, str) and graph == "saved" else graph
    chosen = by_module(given, list(modules))
    unpatch(model)
    made = Patch(model, _inputs(model))
    for place, module in modules.items():
        reads = chosen.get(place)
        inputs = () if reads is None else tuple(reads_batch(reads, made.inputs))
        made.slots[place] = Slot(place, reads, made, inputs, bool(getattr(module, "is_causal", True)))
        module._graphattn = made.slots[place]  # type: ignore[assignment]
    name = f"graphattn_{next(_NUMBERS)}"
    itself = weakref.ref(made)
    AttentionInterface.register(name, lambda *args, **options: attend(itself(), *args, **options))
    AttentionMaskInterface.register(name, lambda **asked: mask_of(itself(), **asked))
    for registry in (AttentionInterface, AttentionMaskInterface):
        weakref.finalize(made, registry._global_mapping.pop, name, None)
    for config in _configs(model, [modules[place] for place in chosen]):
        made.originals[id(config)] = (config, config._attn_implementation)
        config._attn_implementation_internal = name
    made.hooks.append(model.register_forward_pre_hook(made.see, with_kwargs=True))
    generation.hook(model, made)
    setattr(model.config, saving.KEY, saving.to_data(given))
    return made


def unpatch(model: nn.Module) -> None:
    """Take the graphs away again: the model reads as it did before :func:`patch`.

    Args:
        model: The model; one that is not patched stays as it is.
    """
    refuse_class(model, "model")
    if not isinstance(model, nn.Module):
        raise OptionError(f"model must be a model of transformers, got {type(model).__name__}")
    patches = {part.__dict__.pop("_graphattn").patch for part in model.modules() if "_graphattn" in part.__dict__}
    for made in patches:
        for config, implementation in made.originals.values():
            config._attn_implementation_internal = implementation
        for hook in made.hooks:
            hook.remove()
        made.model.config.__dict__.pop(saving.KEY, None)
        generation.unhook(made.model)


@contextmanager
def patched(model: nn.Module, graph: Any) -> Iterator[Patch]:
    """:func:`patch` for as long as a ``with`` block lasts; then the model is as it was, patched or not.

    Args:
        model: As :func:`patch` takes it.
        graph: As :func:`patch` takes it.
    """
    before = getattr(getattr(model, "config", None), saving.KEY, None)
    earlier = {slot.patch for slot in (getattr(part, "_graphattn", None) for part in model.modules()) if slot}
    made = patch(model, graph)
    try:
        yield made
    finally:
        unpatch(model)
        for other in earlier:
            patch(model, {place.name: slot.given for place, slot in other.slots.items() if slot.given is not None})
            setattr(model.config, saving.KEY, before)


def from_pretrained(path: Any, graph: Any = "saved", **options: Any) -> nn.Module:
    """A model that was saved while it was patched, on its graph again.

    Args:
        path: Of the folder that ``save_pretrained`` wrote, or what else transformers loads.
        graph: Another graph than the saved one; needed where a function was given.
        options: Of ``from_pretrained`` of the model's class.

    Raises:
        LoaderError: If no graph was saved with it.
    """
    model = saving.load_model(path, options)
    patch(model, graph)
    return model


def _inputs(model: nn.Module) -> tuple[str, ...]:
    return tuple(inspect.signature(model.forward).parameters)


def _configs(model: nn.Module, modules: list[nn.Module]) -> list[Any]:
    """The configurations by which modules, and the models around them that make their masks, find their attention."""
    wanted = {id(module) for module in modules}
    found: dict[int, Any] = {}
    for part in model.modules():
        config = getattr(part, "config", None)
        around = hasattr(part, "_can_set_attn_implementation") and any(id(x) in wanted for x in part.modules())
        if hasattr(config, "_attn_implementation_internal") and (id(part) in wanted or around):
            found[id(config)] = config
    return list(found.values())

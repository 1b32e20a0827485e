"""Patching a model of transformers so that its attention reads along graphs, and undoing it."""

import inspect
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import count
from typing import Any, cast

from torch import nn

from ..errors import OptionError, need_extra
from . import generation, saving
from .attend import attend, carries_patch
from .causality import warn_of_known
from .config import give_back, take_weights
from .graph_option import by_module, reads_batch
from .hooks import begin, end
from .masks import mask_of
from .mixing import leave_mixer
from .modules import attention_modules, own_code
from .state import Patch, Slot

_NUMBERS = count(1)
_ORIGINALS: dict[
    str, str | None
] = {}  # name in configurations -> name before, also of patches that are gone
_NAME = "_attn_implementation_internal"  # of a configuration


def patch(model: nn.Module, graph: Any) -> Patch:
    """Let the attention of a Hugging Face model run on a graph, in place.

    Models behind transformers' attention interface keep their weights, biases, caches, ``generate``
    and trainer; the graph replaces only the model's own causal, sliding or chunked mask. Its nodes
    are the tokens of a row without padding; a shorter row reads along the first nodes. A pattern
    has a graph for each sequence of the row: position ids that return to their first value start
    one. Virtual tokens of prompt and prefix tuning are read by all tokens and not counted. A 4-D
    mask of the caller, and relative biases, are added to the scores. A token without edges gets 0.

    Layers that mix tokens without attention restart at each sequence of a row, and refuse a graph
    that keeps a token from the one before it, unless it names its layers.

    With ``output_attentions=True`` the model returns :class:`EdgeWeights` of each layer, read as
    tensors (B, H, T, S), with gradients. ``save_pretrained`` keeps the graph in the configuration.

    Args:
        model: Any model of ``transformers`` behind its attention interface, also in a PEFT adapter.
        graph: An :class:`AttentionGraph`, :class:`Pattern` or :class:`PerHead` for all layers, also
            a pattern whose edges are chosen in each call, ``top_k(..., 8, within=causal(...))``; or
            a list with one for each layer; or a dict of them by layer, role ("encoder", "decoder",
            "cross") or name of a stack, which leaves other layers as they are; or a function of the
            length, or of named inputs of the model (``lambda input_ids, attention_mask: ...``),
            that returns a graph, or a list of one for each example (``generate`` calls it at each
            step with all tokens so far, and with ``new``, the number of new ones, if it takes
            that); or a :class:`PerExample` for one batch; "model" for the model's own connectivity,
            as graphs; "saved" for the graphs in its configuration.

    Returns:
        A :class:`Patch`: print it; ``layers(length)`` gives the layers' graphs.

    Raises:
        OptionError: If the model, or a named layer, is not behind the interface; the message has
            advice.
        GraphError: If a graph does not fit; in ``generate``, if one leaks (with the path), or a
            function changes the sources of a token in the cache.

    Example:
        >>> import transformers, graphattn as ga
        >>> config = transformers.GPT2Config(vocab_size=11, n_embd=8, n_head=2, n_layer=2, n_positions=32)
        >>> model = transformers.GPT2LMHeadModel(config)
        >>> ga.patch(model, ga.graphs.sliding_window(..., 4, causal=True))
        Patch(GPT2LMHeadModel: transformer.h.attn x 2 on sliding_window(..., 4, causal=True))
        >>> ga.unpatch(model)
    """
    try:
        import transformers.modeling_utils  # noqa: F401
    except ImportError:
        raise need_extra("transformers", "hf") from None
    modules = attention_modules(model)
    if not hasattr(model, "config"):
        raise OptionError(
            f"model must be a model of transformers, got {type(model).__name__}; pass the one in "
            "it, or replace an nn.MultiheadAttention by ga.nn.GraphAttention.from_torch"
        )
    if isinstance(graph, str) and graph == "saved":
        graphs = saving.saved_in(model)
    else:
        graphs = graph
    chosen = by_module(graphs, list(modules), own_code(model))
    data = saving.to_data(graphs)
    state = Patch(model, _inputs(model))
    main = getattr(model, "main_input_name", "input_ids")
    state.names_layers = isinstance(graphs, Mapping)
    for place, module in modules.items():
        reads = chosen.get(place)
        inputs: tuple[str, ...] = ()
        if reads is not None:
            inputs = tuple(reads_batch(reads, state.inputs, place.role, main))
        state.slots[place] = Slot(
            place, reads, state, inputs, bool(getattr(module, "is_causal", True))
        )
    unpatch(model)
    _copy_configs(model)
    for place, module in modules.items():
        module._graphattn = state.slots[place]  # type: ignore[assignment]
    for config in _configs(model, [modules[place] for place in chosen]):
        setattr(config, _NAME, _name_for(state, config._attn_implementation))
        take_weights(config)
    _watch(model, state)
    generation.hook(model, state)
    setattr(model.config, saving.KEY, data)
    warn_of_known(generation.writers(state))
    return state


def unpatch(model: nn.Module) -> None:
    """Remove the graphs: the model is as it was before :func:`patch`.

    Args:
        model: The model, or a model in it; one without a patch stays as it is. A copy of it is
            another model.
    """
    for state in _patches(model):
        # not so of a copy, which shares its patch
        if any(part is model for part in state.model.modules()):
            _restore(state.model, state)
        _restore(model, state)
    if any(part.config._attn_implementation in _ORIGINALS for part in _configured(model)):
        _copy_configs(model)  # they carry the patch of another model


@contextmanager
def patched(model: nn.Module, graph: Any) -> Iterator[Patch]:
    """A context with :func:`patch`; afterwards the model is as it was, patched or not.

    Args:
        model: As for :func:`patch`.
        graph: As for :func:`patch`.
    """
    before = getattr(getattr(model, "config", None), saving.KEY, None)
    earlier = _patches(model)
    state = patch(model, graph)
    try:
        yield state
    finally:
        unpatch(model)
        for other in earlier:
            patch(
                model,
                {
                    place.name: slot.graph
                    for place, slot in other.slots.items()
                    if slot.graph is not None
                },
            )
            setattr(model.config, saving.KEY, before)


def from_pretrained(path: Any, graph: Any = "saved", **options: Any) -> nn.Module:
    """A model that was saved with a patch, patched with its graph again.

    Args:
        path: The folder that ``save_pretrained`` wrote, or another source of transformers.
        graph: A graph in place of the saved one; required if a function was given.
        options: Options of ``from_pretrained`` of the model's class.

    Raises:
        LoaderError: If no graph was saved with it.
    """
    model = saving.load_model(path, options)
    patch(model, graph)
    return model


def _inputs(model: nn.Module) -> tuple[str, ...]:
    """Names of the inputs; of a model of PEFT without a task, which takes any, those within it."""
    parameters = inspect.signature(model.forward).parameters
    takes_any = {parameter.kind for parameter in parameters.values()} == {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }
    if takes_any and hasattr(model, "get_base_model"):
        return _inputs(cast(Any, model).get_base_model())
    return tuple(parameters)


def _patches(model: nn.Module) -> set[Patch]:
    return {
        part.__dict__["_graphattn"].patch
        for part in model.modules()
        if "_graphattn" in part.__dict__
    }


def _name_for(state: Patch, original: str | None) -> str:
    """The name of the patch in configurations that named ``original``, and in copies of them."""
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    for name, other in state.originals.items():
        if other == original:
            return name
    name = f"graphattn_{next(_NUMBERS)}"
    itself = weakref.ref(state)
    AttentionInterface.register(
        name, lambda *args, **options: attend(_alive(itself), *args, **options)
    )
    AttentionMaskInterface.register(name, lambda **request: mask_of(_alive(itself), **request))
    state.originals[name] = original
    _ORIGINALS[name] = original
    return name


def _alive(reference: "weakref.ref[Patch]") -> Patch:
    """The patch, or an error of a model that was given the name of one that is gone."""
    state = reference()
    if state is None:
        raise carries_patch()
    return state


def _configured(model: nn.Module) -> list[Any]:
    """The parts of a model with a configuration of transformers."""
    return [part for part in model.modules() if hasattr(vars(part).get("config"), _NAME)]


def _copy_configs(model: nn.Module) -> None:
    """Give a model its own copies of shared configurations, without the names of patches."""
    copies: dict[int, Any] = {}
    for part in _configured(model):
        config = deepcopy(part.config, copies)
        name = getattr(config, _NAME)
        if name in _ORIGINALS:
            setattr(config, _NAME, _ORIGINALS[name])
            config.__dict__.pop(saving.KEY, None)
            give_back(config)
        part.config = config


def _watch(model: nn.Module, state: Patch) -> None:
    """Hook the calls of the model and of its submodels; a decoder's inputs have longer names."""
    roles = {
        id(part): slot.place.role
        for part in model.modules()
        if (slot := part.__dict__.get("_graphattn"))
    }
    for part in model.modules():
        inside = {roles[id(inner)] for inner in part.modules() if id(inner) in roles}
        decodes = False
        if part is not model:
            if not inside or not hasattr(part, "_can_set_attn_implementation"):
                continue
            decodes = "decoder_input_ids" in state.inputs and inside <= {"decoder", "cross"}
        named = getattr(getattr(part, "config", None), _NAME, None) in state.originals
        first = partial(begin, state, names=_inputs(part), prefix="decoder_" * decodes, named=named)
        part._graphattn_hooks = [  # type: ignore[assignment]
            part.register_forward_pre_hook(first, with_kwargs=True),
            part.register_forward_hook(partial(end, state), always_call=True),
        ]


def _restore(model: nn.Module, state: Patch) -> None:
    """Remove the hooks and names of a patch from the parts of a model."""
    for part in model.modules():
        config = getattr(part, "config", None)
        name = getattr(config, _NAME, None)
        if name in state.originals:
            setattr(config, _NAME, state.originals[name])
            give_back(config)
        for hook in part.__dict__.pop("_graphattn_hooks", ()):
            hook.remove()
            getattr(config, "__dict__", {}).pop(saving.KEY, None)
        part.__dict__.pop("_graphattn", None)
        leave_mixer(part)
        generation.unhook(part)


def _configs(model: nn.Module, modules: list[nn.Module]) -> list[Any]:
    """The configurations that select the attention of modules, and of submodels that make masks."""
    ids = {id(module) for module in modules}
    configs: dict[int, Any] = {}
    for part in model.modules():
        config = getattr(part, "config", None)
        around = hasattr(part, "_can_set_attn_implementation") and any(
            id(x) in ids for x in part.modules()
        )
        if hasattr(config, _NAME) and (id(part) in ids or around):
            configs[id(config)] = config
    return list(configs.values())

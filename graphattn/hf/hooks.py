"""Hooks around the calls of a patched model: the inputs that its graphs depend on."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import OptionError
from ..graph.modes import not_followed
from .masks import marked
from .mixing import listed
from .state import Patch
from .ticket import ModelCall
from .tokens.frame import BREAK
from .tokens.prepared import BY_TOKEN
from .tokens.sequences import TokenInputs, token_inputs
from .tokens.virtual import virtual_tokens


@partial(not_followed, reason=BREAK)
def begin(
    patch: Patch,
    part: nn.Module,
    args: tuple[Any, ...],
    options: dict[str, Any],
    *,
    names: tuple[str, ...],
    prefix: str,
    named: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Hook before a call of the model, or of one in it: keep the inputs that graphs depend on.

    Returns:
        The arguments of the call, with a ticket on a mask of the caller.

    Raises:
        OptionError: If its configuration, which ``named`` the patch, now names another
            attention.
    """
    config = getattr(part, "config", None)
    if named and (other := getattr(config, "_attn_implementation", None)) not in patch.originals:
        raise OptionError(
            f"the patched model's attention was set to {other!r}, which ignores the graph; "
            "call ga.unpatch(model), "
            "or patch it again"
        )
    if torch.jit.is_tracing() or torch.compiler.is_exporting():
        raise OptionError(
            "a patched model makes its graphs from the tokens of each call, which "
            "torch.export and torch.jit.trace "
            "cannot follow; call ga.unpatch(model), and export with "
            "attention_mask=graph.mask()[None, None]"
        )
    here = patch.running
    named_inputs = dict(zip(names, args, strict=False)) | options
    has_pairs = (getattr(config, "type_vocab_size", None) or 0) > 1
    tokens = token_inputs(named_inputs, has_pairs=has_pairs)
    cache: Any = named_inputs.get("past_key_values")
    if hasattr(cache, "get_seq_length") and cache.get_seq_length():
        tokens.starts.update(patch.starts.get(cache, ()))
    if here.generation.makes_positions or (here.tokens and not here.tokens[0][1].has_positions):
        tokens = tokens.with_generated_positions()
    is_split = patch.splits_rows and not tokens.is_trivial
    if cache is not None and cache in patch.packed:
        raise OptionError(
            f"{listed(patch.mixers)} have no state of a row of several sequences, which "
            "the cache holds; give each sequence a row of its own to go on with it"
        )
    if is_split and not here.tokens:
        _ = patch.mixers  # found before one of them runs
    here.tokens.append((part, tokens))
    if here.part is None or part is here.part or part is patch.model:
        _begin_call(patch, part, {prefix + name: x for name, x in named_inputs.items()}, prefix)
    if "attention_mask" not in options:
        return args, options
    mask = marked(patch, options["attention_mask"], options.get("past_key_values"), needed=is_split)
    return args, options | {"attention_mask": mask}


def _begin_call(patch: Patch, part: nn.Module, arguments: dict[str, Any], prefix: str) -> None:
    """Keep the inputs of an outermost call."""
    here = patch.running
    config = getattr(part, "config", None)
    wants = arguments.get(f"{prefix}output_attentions")
    if wants is None:
        wants = getattr(config, "output_attentions", False)
    generation = here.generation
    inputs = {name: arguments[name] for name in patch.batch_inputs if name in arguments}
    has_all = generation.is_prepared
    if has_all:
        inputs = {name: x for name, x in inputs.items() if name not in BY_TOKEN}
        inputs |= generation.inputs
        generation.is_prepared = False
        generation.written = patch.written_in(arguments.get("past_key_values"))
    virtual = virtual_tokens(part) or generation.virtual
    here.part = part
    here.call = ModelCall(inputs, has_all=has_all, weights=bool(wants), virtual=virtual)
    here.decoder = None
    here.ran = {}


@partial(not_followed, reason=BREAK)
def end(patch: Patch, part: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Hook after a call, also after an error: forget its inputs."""
    tokens = patch.running.tokens
    if any(inner is part for inner, _ in tokens):
        inner, inputs = tokens.pop()
        while inner is not part:
            inner, inputs = tokens.pop()
        cache = getattr(output, "past_key_values", None)
        if hasattr(cache, "get_seq_length"):
            patch.starts.setdefault(cache, set()).update(inputs.starts)
        if patch.splits_rows and patch.may_mix:
            _follow(patch, inputs, output)
            if hasattr(cache, "get_seq_length") and patch.running.has_restarted:
                patch.packed.add(cache)
    if part is patch.running.part:
        patch.last = patch.last | patch.running.ran
        patch.forget()


def _follow(patch: Patch, tokens: TokenInputs, output: Any) -> None:
    """Let layers that run again in a backward pass, under checkpointing, know the sequences."""
    again = (patch.running.call, tokens)

    def remember(gradient: Tensor) -> None:
        patch.running.again = again

    for x in tree_leaves(output):
        if isinstance(x, Tensor) and x.requires_grad:
            x.register_hook(remember)

"""Refusal of models whose modules are no longer what their configuration makes: a reader looks at parameters alone."""

import sys
from typing import Any

import torch
from torch import nn

from ...errors import OptionError

ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
_OF_RUNS = ("training", "gradient_checkpointing")  # change as a model is used
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse_mixed(model: nn.Module) -> None:
    """Refuse parameters that are not plain numbers in one dtype, on one device.

    Raises:
        OptionError: With the name of the first one that is quantised, or spread over devices, or unlike the first.
    """
    kinds: dict[tuple[torch.dtype, torch.device], str] = {}
    for name, p in model.named_parameters():
        if type(p) not in (torch.Tensor, nn.Parameter) or p.dtype not in _FLOATS:
            raise OptionError(
                f"{name} is a {type(p).__name__} of {p.dtype}, and only plain floating-point parameters can be read: "
                "load the model without quantization_config, or call model.dequantize() first"
            )
        kinds.setdefault((p.dtype, p.device), name)
    if len(kinds) > 1:
        each = ", ".join(f"{name} is {dtype} on {device}" for (dtype, device), name in kinds.items())
        raise OptionError(
            f"the model's parameters must have one dtype and device, and {each}; call model.to(...) first"
        )


def refuse_changes(model: Any) -> None:
    """Refuse a model in which a number, a number of layers, or the class of a module is another one than in a new model
    of its class and configuration, or a module has a ``forward`` of its own or hooks, but for those of transformers.

    Raises:
        OptionError: With the first difference.
    """
    with torch.device("meta"):
        made = dict(type(model)(model.config).named_modules())
    for name, module in model.named_modules():
        fresh = made.get(name, module)  # heads and poolers may be left out or put in
        if type(module) is not type(fresh):
            _refuse(name, type(module).__name__, type(fresh).__name__)
        if isinstance(module, nn.ModuleList) and len(module) != len(fresh):
            _refuse(name, f"{len(module)} layers", str(len(fresh)))
        _refuse_patches(name, module)
        makes = _numbers(fresh)
        for key, number in _numbers(module).items():
            if makes.get(key, number) != number:
                _refuse(f"{name}.{key}", repr(number), repr(makes[key]))


def _refuse_patches(name: str, module: nn.Module) -> None:
    """Transformers' own hooks record outputs, or make inputs need a gradient."""
    name = name or type(module).__name__
    if "forward" in vars(module):
        _refuse(f"{name}.forward", _full_name(vars(module)["forward"]), f"that of {type(module).__name__}")
    for kind, hooks in (("hook", module._forward_hooks), ("pre-hook", module._forward_pre_hooks)):
        for hook in map(_full_name, hooks.values()):
            if not hook.startswith("transformers."):
                raise OptionError(
                    f"{name} has a forward {kind}, {hook}, and what it changes cannot be read; remove it first, with "
                    f".remove() of what register_forward_{kind.replace('-', '_')} gave"
                )


def refuse_other_attention(model: Any) -> None:
    """Refuse a model that attends by another function than one of the library's own, which all compute the same.

    Raises:
        OptionError: With its name.
    """
    for module in model.modules():
        name = getattr(getattr(module, "config", None), "_attn_implementation", None)
        registered = getattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS", {})
        function = registered.get(name) if name is not None else None
        theirs = function is None or _full_name(function).startswith("transformers.")
        if name is not None and (name not in ATTENTION or not theirs):
            if hasattr(module, "_graphattn") or str(name).startswith("graphattn_"):
                raise OptionError("the model reads along a graph, which from_hf does not take over: ga.unpatch(model)")
            which = "" if function is None else f", which is {_full_name(function)}"
            raise OptionError(
                f"the model attends by attn_implementation={name!r}{which}, and what that computes cannot be read; "
                f"expected one of {', '.join(ATTENTION)}. If its weights mean the same under transformers' own: "
                'model.set_attn_implementation("eager")'
            )


def _full_name(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _numbers(module: nn.Module) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, int | float | tuple) and not key.startswith("_") and key not in _OF_RUNS
    }


def _refuse(what: str, has: str, makes: str) -> None:
    raise OptionError(
        f"{what} is {has} where the model's configuration makes {makes}: a model that was changed since it was built "
        "(converted, adapted, quantised) cannot be read; take it as transformers loads it"
    )

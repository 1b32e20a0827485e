"""Refusal of models whose modules differ from their configuration."""

import sys
from typing import Any

import torch
from torch import nn

from ...errors import OptionError

ATTENTION = (
    "eager",
    "sdpa",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
)
_OF_RUNS = ("training", "gradient_checkpointing")  # change in use
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse_changes(model: Any) -> None:
    """Refuse a model that differs from a new one of its class and configuration.

    Its parameters must be plain numbers, of the same number, classes and layers; its forwards, hooks
    and attention transformers' own.

    Raises:
        OptionError: With the first difference.
    """
    for name, p in model.named_parameters():
        if type(p) not in (torch.Tensor, nn.Parameter) or p.dtype not in _FLOATS:
            raise OptionError(
                f"{name} is a {type(p).__name__} of {p.dtype}, and only plain floating-point "
                "parameters can be read: load the model without quantization_config, or call "
                "model.dequantize() first"
            )
    with torch.device("meta"):
        fresh_modules = dict(type(model)(model.config).named_modules())
    for name, module in model.named_modules():
        fresh = fresh_modules.get(name, module)  # heads and poolers may be left out or added
        makes = _numbers(fresh)
        if type(module) is not type(fresh):
            _refuse(name, type(module).__name__, type(fresh).__name__)
        if isinstance(module, nn.ModuleList) and len(module) != len(fresh):
            _refuse(name, f"{len(module)} layers", str(len(fresh)))
        for key, number in _numbers(module).items():
            if makes.get(key, number) != number:
                _refuse(f"{name}.{key}", repr(number), repr(makes[key]))
        _refuse_code(name or type(module).__name__, module)


def _refuse_code(name: str, module: nn.Module) -> None:
    """Refuse hooks and attention of others; transformers' own record outputs or gradients."""
    if "forward" in vars(module):
        _refuse(
            f"{name}.forward",
            _full_name(vars(module)["forward"]),
            f"that of {type(module).__name__}",
        )
    for kind, hooks in (("hook", module._forward_hooks), ("pre-hook", module._forward_pre_hooks)):
        for hook in map(_full_name, hooks.values()):
            if not hook.startswith("transformers."):
                raise OptionError(
                    f"{name} has a forward {kind}, {hook}, whose effect cannot be read; remove it "
                    "first"
                )
    attention = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if attention is None:
        return
    if hasattr(module, "_graphattn") or str(attention).startswith("graphattn_"):
        raise OptionError(
            "the model reads along a graph, which from_transformers does not take over: ga.unpatch(model)"
        )
    attention_function = getattr(
        sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS", {}
    ).get(attention)
    if attention not in ATTENTION or not (
        attention_function is None or _full_name(attention_function).startswith("transformers.")
    ):
        raise OptionError(
            f"the model has attn_implementation={attention!r}, not transformers' own; expected one "
            f"of {', '.join(ATTENTION)}. If its "
            'weights mean the same under one of these: model.set_attn_implementation("eager")'
        )


def _full_name(function: Any) -> str:
    if hasattr(function, "__qualname__"):
        named = function
    else:
        named = type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _numbers(module: nn.Module) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, int | float | tuple)
        and not key.startswith("_")
        and key not in _OF_RUNS
    }


def _refuse(subject: str, has: str, makes: str) -> None:
    raise OptionError(
        f"{subject} is {has} where the model's configuration makes {makes}: a model that was "
        "changed since it was built (converted, adapted, quantised) cannot be read; take it as "
        "transformers loads it"
    )

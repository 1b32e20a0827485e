"""Whether a model's modules are still what its configuration makes: its reader looks at that and at its parameters."""

from typing import Any

import torch
from torch import nn

from ...errors import OptionError

_OF_RUNS = ("training", "gradient_checkpointing")  # change as a model is used


def refuse_changes(model: Any) -> None:
    """Refuse a model in which a number, a number of layers, or the class of a module without parameters is another one
    than in a new model of its class and configuration.

    Raises:
        OptionError: With the first difference.
    """
    with torch.device("meta"):
        made = dict(type(model)(model.config).named_modules())
    for name, module in model.named_modules():
        fresh = made.get(name, module)  # heads and poolers may be left out or put in
        plain = next(module.parameters(), None) is None and next(fresh.parameters(), None) is None
        if plain and type(module) is not type(fresh):
            _refuse(name, type(module).__name__, type(fresh).__name__)
        if isinstance(module, nn.ModuleList) and len(module) != len(fresh):
            _refuse(name, f"{len(module)} layers", str(len(fresh)))
        makes = _numbers(fresh)
        for key, number in _numbers(module).items():
            if makes.get(key, number) != number:
                _refuse(f"{name}.{key}", repr(number), repr(makes[key]))


def _numbers(module: nn.Module) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, int | float | tuple) and not key.startswith("_") and key not in _OF_RUNS
    }


def _refuse(what: str, has: str, makes: str) -> None:
    raise OptionError(
        f"{what} is {has} where the model's configuration makes {makes}: a model that was changed since it was built "
        "cannot be read"
    )

"""Tensors that objects and modules of the package hold: caches, wherever they are."""

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch
from torch import Tensor, nn


def tensors_of(*roots):
    """All tensors that objects hold, through containers, closures and objects of the package."""
    tensors = {}
    seen = set()
    left = list(roots)
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            tensors[id(item)] = item
        elif isinstance(item, FunctionType):
            left += [item.__closure__, item.__defaults__, item.__dict__]
        elif not isinstance(item, ModuleType | type | BuiltinFunctionType | str | int | float):
            module = type(item).__module__
            if module.partition(".")[0] in ("graphattn", "builtins", "functools", "collections"):
                left += gc.get_referents(item)
            elif isinstance(item, nn.Module):
                left.append(vars(item))
    return tensors


def of_modules():
    """The tensors that modules of the package hold, and functions in them."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "graphattn"]
    return tensors_of(*(value for m in modules for value in list(vars(m).values())))


def is_plain(x):
    """True for a tensor as it is made at the start of a program."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return type(x) is Tensor and not (wrapped or x.is_inference() or x.requires_grad or x.is_meta)

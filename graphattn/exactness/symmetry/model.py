"""A model that is called with what its signature names."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import check_shape, one_of, shown
from ...errors import OptionError
from .moves import KINDS, OF_NODES, TURNING
from .structure import Structure

Outputs = dict[str, Tensor]
"""Checked outputs by name."""


class ModelUnderTest:
    """The model under test.

    Args:
        function: A module or a function.
        output: Kind of its output, or kinds of several: a list, or a dict by name.
    """

    def __init__(self, function: Callable[..., Any], output: Any) -> None:
        self.function = function
        self.output = output
        self.kinds = {name: kind for name, kind in named(output).items() if kind is not None}
        self.signature = _signature(function)

    @property
    def takes_any(self) -> bool:
        """True if it has a ``**kwargs``."""
        kinds = [parameter.kind for parameter in self.signature.parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def name(self) -> str:
        """The class of a module, or the name of a function."""
        if isinstance(self.function, nn.Module):
            return type(self.function).__name__
        return getattr(self.function, "__name__", type(self.function).__name__)

    def takes(self, name: str) -> bool:
        """True if its signature has this name."""
        return name in self.signature.parameters

    def check(self, structure: Structure) -> None:
        """Refuse inputs that it does not take, which would be left out."""
        for name in structure.inputs:
            if not self.takes(name) and not self.takes_any:
                raise OptionError(
                    f"{name} must be an argument of the model, which takes "
                    f"{', '.join(self.signature.parameters) or 'nothing'}; wrap it: "
                    f"lambda pos, {name}: model(...)"
                )

    def _named(self, structure: Structure) -> dict[str, Any]:
        """All that a model may name."""
        arguments: dict[str, Any] = {**structure.inputs, "pos": structure.pos}
        if structure.cell is not None:
            arguments["cell"] = structure.cell
        if structure.graph is not None:
            arguments["graph"] = structure.graph
            arguments["edge_index"] = structure.graph.edge_index
        return arguments

    def raw(self, structure: Structure) -> Any:
        """The model's own result."""
        arguments = self._named(structure)
        for name, x in arguments.items():
            if isinstance(x, Tensor):  # the model may change it, or differentiate by it
                arguments[name] = x.detach().clone()
        passed = []
        named_ones = {}
        for name, parameter in self.signature.parameters.items():
            if name not in arguments:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                passed.append(arguments[name])
            else:
                named_ones[name] = arguments[name]
        if self.takes_any:
            named_ones.update({name: arguments[name] for name in structure.inputs})
        with torch.enable_grad():
            return self.function(*passed, **named_ones)

    def run(self, structure: Structure) -> Outputs:
        """The outputs that are checked, detached, float64."""
        return self.checked(self.raw(structure), structure)

    def checked(self, result: Any, structure: Structure) -> Outputs:
        """Outputs of the kinds that were named, by name."""
        outputs = named(result)
        if isinstance(self.output, str):
            if len(outputs) > 1:
                raise OptionError(
                    f"output must name a kind for each of {len(outputs)} outputs, got "
                    f"{shown(self.output)}; pass a list, with None for one that is not checked"
                )
            outputs = dict(zip(("output",), outputs.values(), strict=False))
        missing = [name for name in self.kinds if name not in outputs]
        if missing:
            raise OptionError(
                f"output names {missing[0]}, and the model gives {', '.join(outputs) or 'nothing'}"
            )
        return {
            name: self._one(name, kind, outputs[name], structure)
            for name, kind in self.kinds.items()
        }

    def _one(self, name: str, kind: str, x: Any, structure: Structure) -> Tensor:
        if kind in OF_NODES:
            hint = f'as output="{kind}" has; numbers of the whole structure are output="scalar"'
            check_shape(x, name, (structure.num_nodes, ...), hint)
        if kind in TURNING:
            hint = f'as output="{kind}" has; return x.transpose(-1, -2) if the axes come earlier'
            check_shape(x, name, (..., structure.axes), hint)
        return x.detach().to(torch.float64, copy=True)  # of a buffer that the model may reuse


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Signature of a model; a compiled or parallel one has that of the model within it."""
    called: Any = function
    while isinstance(called, nn.Module):
        within = getattr(called, "_orig_mod", None)
        if isinstance(called, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            within = called.module
        if within is None:
            called = called.forward
        else:
            called = within
    try:
        return inspect.signature(called)
    except ValueError:
        raise OptionError(
            f"subject must have a signature, got {shown(function)}; wrap it: lambda pos: model(pos)"
        ) from None


def named(outputs: Any) -> dict[str, Any]:
    """Outputs, or their kinds, by name: a dict, a list, or one."""
    if isinstance(outputs, dict):
        return dict(outputs)
    if isinstance(outputs, Sequence) and not isinstance(outputs, str):
        return {f"output[{index}]": x for index, x in enumerate(outputs)}
    return {"output": outputs}


def check_kinds(output: Any) -> None:
    """Refuse kinds of outputs that are none."""
    kinds = named(output).values()
    for kind in kinds:
        if kind is not None:
            one_of(kind, "output", KINDS)
    if all(kind is None for kind in kinds):
        raise OptionError("output must name the kind of at least one output, got none")

"""Custom models: any module that reads graphs, between the data and the readout of a study."""

import hashlib
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..arguments import shown, width
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph
from .data import Data
from .network import Model, Network, Readout
from .syntax import syntax_of

# their versions are in a trial's key, or their code is
_VERSIONED = (
    "torch",
    "torch_geometric",
    "graphattn",
)


@dataclass(frozen=True)
class CustomModel:
    """A custom model: a function that makes its module, and the number of layers that read a graph.

    The module is called as ``module(inputs, graphs, places, pos)`` and returns the logits of all
    nodes, (..., N, classes). The study reads them out: their mean over a sample's nodes, those of
    one node, or each.

    * ``inputs``: tokens (..., N) or features (..., N, F). Where every sample has its own graph, the
      nodes of all samples of a batch are side by side: one axis of nodes, and no other before it.
    * ``graphs``: a list of ``layers`` graphs of N nodes.
    * ``places``: int64 (N,), where each node stands in its sample; ``pos``: (..., N, d), or None
      where data has none.

    Args:
        make: Called with the :class:`Data`, it makes the module: a function, or the module's class.
            Its random state is that of the trial's seed. Trials in other processes import it: it
            then stands in a file of its own.
        layers: L. No output may depend on a node that L layers of the graphs do not reach; that is
            checked.
    """

    make: Callable[[Data], nn.Module]
    layers: int = 1

    def __post_init__(self) -> None:
        if not callable(self.make) or isinstance(self.make, nn.Module):
            raise OptionError(
                f"make must be a function of the data that makes a module, got {shown(self.make)}"
            )
        width(self.layers, "layers")

    @property
    def can_travel(self) -> bool:
        """True if another process can import ``make``."""
        try:
            return getattr(self.make, "func", self.make).__module__ != "__main__" and bool(
                pickle.dumps(self.make)
            )
        except (pickle.PicklingError, AttributeError, TypeError):
            return False

    def module(self, data: Data) -> nn.Module:
        """A new one.

        Raises:
            OptionError: If it is no module, or one without parameters, or with parameters of no
                size yet.
        """
        made = self.make(data)
        if not isinstance(made, nn.Module):
            raise OptionError(f"make must return a torch.nn.Module, got {shown(made)}")
        parameters = list(made.parameters())
        if not parameters:
            raise OptionError(
                f"make must return a module with parameters to train, {type(made).__name__} has "
                "none"
            )
        if any(isinstance(p, UninitializedParameter) for p in parameters):
            raise OptionError(
                f"make must return a module whose parameters have sizes, {type(made).__name__} is "
                "lazy"
            )
        return made

    def described(self, data: Data) -> dict[str, Any]:
        """The description of a model, on which a trial's key depends.

        The statements of ``make`` and of its modules, and their state after seed 0; not those of
        what they call.

        Raises:
            OptionError: If a source cannot be read.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = CustomNetwork(self, data, "mean", 0)
        make = getattr(self.make, "func", self.make)  # of a functools.partial
        told = {make, *(type(module) for module in network.module.modules())}
        sources = sorted(
            syntax_of(source_of(each))
            for each in told
            if str(each.__module__).split(".")[0] not in _VERSIONED
        )
        digest = hashlib.sha256(
            "\n".join([*sources, str(network.module), network.digest()]).encode()
        ).hexdigest()
        name = getattr(make, "__qualname__", type(make).__name__)
        return {"make": name, "layers": self.layers, "digest": digest[:16]}


def source_of(code: Any) -> str:
    """The text of a function or a class."""
    try:
        return inspect.getsource(code)
    except (OSError, TypeError) as error:
        raise OptionError(
            f"the source of {getattr(code, '__qualname__', code)} cannot be read ({error}), so "
            "that its results could not be told from those of other code; write it into a file"
        ) from None


class CustomNetwork(Readout):
    """A user's module, and the readout of its logits."""

    def __init__(self, own: CustomModel, data: Data, readout: str, token: int) -> None:
        super().__init__(readout, token, "none")
        self.module = own.module(data)
        self.layers = own.layers
        self.classes = data.classes

    def forward(
        self,
        inputs: Tensor,
        layers: tuple[AttentionGraph, ...],
        places: Tensor,
        pos: Tensor | None = None,
        kept: Tensor | None = None,
        pairs: Tensor | None = None,
        ends: Tensor | None = None,
    ) -> Tensor:
        """Logits, as of :class:`Network`."""
        return self.read(self.of_nodes(inputs, layers, places, pos, kept), kept)

    def of_nodes(
        self,
        inputs: Tensor,
        layers: tuple[AttentionGraph, ...],
        places: Tensor,
        pos: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """Logits of nodes, (B, N, classes), or (M, classes) of all that are kept.

        Raises:
            ShapeError: If the module returns something else.
        """
        if kept is not None:
            inputs = inputs[kept]
            places = places.expand(kept.shape)[kept]
            if pos is not None:
                pos = pos[kept]
        graphs = list(layers) * (self.layers if len(layers) == 1 else 1)
        logits = self.module(inputs, graphs, places, pos)
        nodes = inputs.shape[: 1 if kept is not None else 2]
        if not isinstance(logits, Tensor) or logits.shape != (*nodes, self.classes):
            raise ShapeError(
                f"the module must return the logits of all nodes, {(*nodes, self.classes)}, got "
                f"{shown(logits)}"
            )
        return logits


def network_of(
    model: Model | CustomModel, data: Data, readout: str, positions: str, token: int = 0
) -> Network | CustomNetwork:
    """A new network, of the random state that there is."""
    if isinstance(model, CustomModel):
        return CustomNetwork(model, data, readout, token)
    return Network(model, data, readout, positions, token)

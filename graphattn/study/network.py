"""The model of a study: the same module for every arm, this library's or a user's own."""

import ast
import hashlib
import inspect
import pickle
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import one_of, shown, width
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph, disjoint_union
from ..models.stacks import Encoder
from ..nn import ALiBi, EdgeTypeBias, LearnedPosition, Rotary
from .data import Data

Layers = tuple[AttentionGraph, ...]
POSITIONS = ("none", "learned", "relative", "rotary", "alibi", "distance", "pairs")
READOUTS = ("mean", "token", "node", "edge")
# of distances: buckets in a sample's root mean square radius, and how many there are
_PER_RADIUS = 8
_BUCKETS = 32


@dataclass(frozen=True)
class Model:
    """Sizes of a pre-norm encoder and of what it stands between.

    Args:
        layers: L.
        width: C.
        heads: H.
        hidden: Width of the feed-forwards.
        table_std: Deviation of the tables of relative positions and distances at the start.
        batch_norm: Whether a batch norm stands before the last linear layer; for pooled readouts.
    """

    layers: int = 2
    width: int = 24
    heads: int = 1
    hidden: int = 32
    table_std: float = 0.02
    batch_norm: bool = False

    def described(self, data: Data) -> dict[str, Any]:
        """The model as plain values, on which a trial's key depends."""
        return asdict(self)


class Readout(nn.Module):
    """The interface of a network: all that is counted, compared and read out, whatever is between.

    Args:
        readout: "mean", "token", "node" or "edge".
        token: Which node, of "token".
        positions: What of the places the module is given; "none" where it has its own ways.
    """

    def __init__(self, readout: str, token: int, positions: str) -> None:
        super().__init__()
        self.readout = one_of(readout, "readout", READOUTS)
        self.token = token
        self.positions = one_of(positions, "positions", POSITIONS)
        self.tables = nn.ModuleList()
        self.learned: LearnedPosition | None = None

    def read(self, x: Tensor, kept: Tensor | None, ends: Tensor | None = None) -> Tensor:
        """The readout (B, C), or (B, N, C) of all nodes, of nodes (B, N, C) or (M, C).

        Of edges (B, E, 2 C): their target and their source.
        """
        if kept is not None:
            x = torch.zeros(*kept.shape, x.shape[-1], dtype=x.dtype).masked_scatter(
                kept.unsqueeze(-1), x
            )
        if self.readout == "token":
            return x[:, self.token]
        if self.readout == "node":
            return x
        if self.readout == "edge":
            assert ends is not None
            samples = torch.arange(len(x)).view(-1, 1, 1)
            return x[samples, ends].flatten(-2)
        if kept is None:
            return x.mean(-2)
        return x.sum(-2) / kept.sum(-1, keepdim=True)

    def parameters_apart(self) -> tuple[int, int]:
        """Numbers of parameters: of all but positions, and of positions."""
        positions = sum(p.numel() for p in self.tables.parameters())
        if self.learned is not None:
            positions += sum(p.numel() for p in self.learned.parameters())
        return sum(p.numel() for p in self.parameters()) - positions, positions

    def digest(self) -> str:
        """A hash of the state."""
        result = hashlib.sha256()
        for name, value in self.state_dict().items():
            result.update(name.encode())
            result.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        return result.hexdigest()[:16]


def _rows_of_table(data: Data, positions: str) -> int:
    """Rows of a layer's table of biases; 0 without one."""
    if positions == "distance":
        return _BUCKETS
    if positions == "pairs" and data.pairs is not None:
        return int(data.pairs.max()) + 1
    if positions != "relative":
        return 0
    if data.causal:
        return data.num_nodes
    return 2 * data.num_nodes - 1


class Network(Readout):
    """Logits of samples: embedding, positions, encoder, readout, head.

    Positions are built last, so that all else starts alike with and without them.
    """

    def __init__(
        self, model: Model, data: Data, readout: str, positions: str, token: int = 0
    ) -> None:
        super().__init__(readout, token, positions)
        self.causal = data.causal
        C = model.width
        H = model.heads
        self.embedding: nn.Module
        if data.inputs.is_floating_point():
            self.embedding = nn.Linear(data.inputs.shape[2], C)
        else:
            self.embedding = nn.Embedding(int(data.inputs.max()) + 1, C)
        options: dict[str, Any] = {}
        if positions == "rotary":
            options["rotary"] = Rotary(C // H)
        self.encoder = Encoder(model.layers, C, H, model.hidden, **options)
        self.norm: nn.Module = nn.Identity()
        if model.batch_norm and readout not in ("node", "edge"):
            self.norm = nn.BatchNorm1d(C)
        ends = 1 + (readout == "edge")
        self.head = nn.Linear(ends * C, data.classes)
        if positions == "learned":
            self.learned = LearnedPosition(data.num_nodes, C)
        self.linear = None
        if positions == "alibi":
            self.linear = ALiBi(H)
        # the latest graph and places, and their values
        self._last: tuple[Any, ...] = (None, None, None)
        self.rows = _rows_of_table(data, positions)
        tables = []
        if self.rows:
            tables = [EdgeTypeBias(self.rows, H) for _ in range(model.layers)]
        self.tables = nn.ModuleList(tables)
        for table in tables:
            nn.init.normal_(table.weight, std=model.table_std)

    def forward(
        self,
        inputs: Tensor,
        layers: Layers,
        places: Tensor,
        pos: Tensor | None = None,
        kept: Tensor | None = None,
        pairs: Tensor | None = None,
        ends: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, classes), or (B, N, classes) of nodes and (B, E, classes) of edges.

        Args:
            inputs: (B, N) or (B, N, F).
            layers: Graphs of N nodes; with ``kept`` one of all kept nodes of the batch, for all
                layers.
            places: int64 (N,), where each node stands.
            pos: (B, N, d), for distances.
            kept: bool (B, N), which nodes are there, where every sample has its own graph.
            pairs: int64 (B, N, N), for a table of classes of pairs.
            ends: int64 (B, E, 2), the edges of the readout "edge".
        """
        x = self.embedding(inputs)
        if self.learned is not None:
            x = self.learned(x, places)
        at = places
        if kept is not None:
            x = x[kept]
            at = places.expand(kept.shape)[kept]
            if pos is not None:
                pos = pos[kept]
        if len(layers) == 1:
            layers = layers * len(self.encoder.layers)
        options: dict[str, Any] = {"score_bias": self._biases(layers, at, pos, kept, pairs)}
        if self.positions == "rotary":
            options["positions"] = at
        x = self.encoder(x, list(layers), **options)
        return self.head(self.norm(self.read(x, kept, ends)))

    def _biases(self, graphs: Layers, places: Tensor, *where: Any) -> Any:
        if self.linear is not None:
            biases = {graph: self.linear(graph, places) for graph in dict.fromkeys(graphs)}
            return [biases[graph] for graph in graphs]
        if not len(self.tables):
            return None
        values = {graph: self._values(graph, places, *where) for graph in dict.fromkeys(graphs)}
        tables: Iterable[Any] = self.tables
        return [table.rows(values[graph]) for table, graph in zip(tables, graphs, strict=True)]

    def _values(
        self,
        graph: AttentionGraph,
        places: Tensor,
        pos: Tensor | None,
        kept: Tensor | None,
        pairs: Tensor | None,
    ) -> Tensor:
        """Rows of the tables, (E,) or (B, E): by steps back, distance or class of the source."""
        source = graph.source
        target = graph.target
        if self.positions == "relative":
            if self._last[0] is graph and self._last[1] is places:
                return self._last[2]
            values = places[target] - places[source]
            if not self.causal:
                values = values + (self.rows - 1) // 2
            self._last = (graph, places, values)
            return values
        if self.positions == "pairs":
            assert pairs is not None
            if kept is None:
                return pairs[:, target, source]
            sample, node = kept.nonzero(as_tuple=True)
            return pairs[sample[target], node[target], node[source]]
        assert pos is not None
        distance = (pos[..., target, :] - pos[..., source, :]).norm(dim=-1)
        return (_PER_RADIUS * distance).long().clamp(max=_BUCKETS - 1)


def union(graphs: list[AttentionGraph]) -> AttentionGraph:
    """The graphs of a batch side by side."""
    if len(graphs) == 1:
        return graphs[0]
    return disjoint_union(graphs)


# their versions are in a trial's key, or their code is
_VERSIONED = ("torch", "torch_geometric", "graphattn")


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
            OptionError: If it is no module, or one without parameters.
        """
        made = self.make(data)
        if not isinstance(made, nn.Module) or not list(made.parameters()):
            raise OptionError(
                f"make must return a torch.nn.Module with parameters to train, got {shown(made)}"
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
        layers: Layers,
        places: Tensor,
        pos: Tensor | None = None,
        kept: Tensor | None = None,
        *_unread: Any,
    ) -> Tensor:
        """Logits, as of :class:`Network`."""
        return self.read(self.of_nodes(inputs, layers, places, pos, kept), kept)

    def of_nodes(
        self,
        inputs: Tensor,
        layers: Layers,
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


def syntax_of(text: str) -> str:
    """Statements in one layout, without comments and docstrings; text that cannot be parsed as is.

    Example:
        >>> syntax_of("def f(x):  # twice\\n    'Double.'\\n    return (2 *\\n x)")
        'def f(x):\\n    return 2 * x'
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a lambda within a call
        return text
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

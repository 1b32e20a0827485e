"""The interface of a backend, and the facts about itself that its cost is made of."""

from typing import Any

from ..graph import AttentionGraph
from .rates import kept
from .request import HALF, Inputs, Outputs, Request

#: Every backend by name, in the order of registration.
BACKENDS: dict[str, "Backend"] = {}


def in_halves(kind: str) -> str:
    """The name of the share of a kind's time that it takes in half precision, among measured rates."""
    return f"{kind}, halves"


class Backend:
    """One way to run attention on a graph. A subclass with a ``name`` is registered.

    The times are those of two cores of a server; ``graphattn doctor --calibrate`` measures this machine's on
    :meth:`problems`.
    """

    name: str
    call_ms: float
    """What a call takes on a graph of a few nodes."""
    training_factor: float
    """Forward and backward together, over the forward pass."""
    ns: dict[str, float]
    """Each kind of its work: nanoseconds for a unit, times heads, times D + D_v."""
    cuda: dict[str, float] = {}
    """Rates that are others on CUDA, by a model: bytes over bandwidth, products over what they reach. Not measured."""
    halves: dict[str, float] = {}
    """On CUDA the share of a kind's time that it takes in half precision, by the same model; 1 unless given."""
    lists_edges = False
    """Whether it lists the edges of a rule."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            BACKENDS[cls.name] = cls()

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        """Why it cannot run; empty if it can."""
        raise NotImplementedError

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        """What its user should know."""
        return []

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        """About what the forward pass holds beside its inputs, in bytes."""
        raise NotImplementedError

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """What a call consists of: a kind of :attr:`ns`, and how many units of it."""
        raise NotImplementedError

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A graph and options of :func:`attention` for each kind of work; training is measured on the first."""
        return []

    def trials(self) -> list[tuple[str, list[AttentionGraph]]]:
        """Kinds of work that are taken on CUDA only where calibration found them exact, in half precision, on graphs
        of which the first is timed."""
        return []

    def run(self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False) -> Outputs:
        """Attention on checked inputs."""
        raise NotImplementedError

    def cost_ms(self, graph: AttentionGraph, request: Request) -> float:
        """A rough time for the forward pass, to rank backends by; in ms."""
        return self.rates(request.device.type)["call_ms"] + self.work_ms(request, *self.work(graph, request))

    def least_ms(self, graph: AttentionGraph, request: Request) -> float:
        """A time that :meth:`cost_ms` is not below, known without a look at where the edges are; in ms."""
        return self.rates(request.device.type)["call_ms"]

    def work_ms(self, request: Request, kind: str, units: float) -> float:
        """What so many units of a kind of work take, in ms."""
        rates, share = self.rates(request.device.type), 1.0
        if request.device.type == "cuda" and request.dtype in HALF:
            share = rates.get(in_halves(kind), self.halves.get(kind, 1.0))
        return request.floats_per_pair * units * rates[kind] * share * 1e-6

    def rates(self, device: str = "cpu") -> dict[str, float]:
        """``call_ms``, ``training_factor`` and ``ns``: this machine's where they were measured, else the built-in."""
        if device == "cuda":
            return {**self.built_in(), **self.cuda, **kept("cuda").get(self.name, {})}
        return {**self.built_in(), **kept().get(self.name, {})}

    def built_in(self) -> dict[str, float]:
        """The rates that the class is written with."""
        return {"call_ms": self.call_ms, "training_factor": self.training_factor, **self.ns}

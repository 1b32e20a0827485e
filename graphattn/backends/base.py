"""The interface of a backend, with the rates that its cost is computed from."""

import math
from typing import Any

import torch

from ..graph import AttentionGraph
from ..operands import HALF, Inputs, Outputs
from .device import has_amx
from .rates import measured_rates
from .request import Request

#: Every backend by name, in the order of registration.
BACKENDS: dict[str, "Backend"] = {}


def in_halves(kind: str) -> str:
    """The name of a measured rate: time in half precision as a share of a kind's time."""
    return f"{kind}, halves"


class Backend:
    """One way to run attention on a graph. A subclass with a ``name`` is registered.

    The built-in times are those of one thread of a server, an AMD EPYC with AVX-512; ``graphattn doctor --calibrate`` measures
    this machine on :meth:`problems`.
    """

    name: str
    call_ms: float
    """Time of a call on a graph of a few nodes."""
    training_factor: float
    """Time of forward and backward together, over that of the forward pass."""
    biased_training = 1.0
    """:attr:`training_factor` of calls with a score bias, over that of others."""
    place_bias_is_free = False
    """True if a bias by place takes no longer than none."""
    ns: dict[str, float]
    """Rates by kind of work: nanoseconds per unit and each of :meth:`numbers`."""
    least_width: dict[str, int] = {}
    """Widths on the CPU below which a kind of work takes no less time, as measured."""
    cuda: dict[str, float] = {}
    """Rates that differ on CUDA, from a model: bytes over bandwidth, products over throughput."""
    halves: dict[str, float] = {}
    """Time in half precision on CUDA as a share of a kind's time, from the same model, or 1."""
    amx: dict[str, float] = {}
    """Time in bfloat16 on a CPU with AMX as a share of a kind's time, an estimate, or 1."""
    lists_edges = False
    """True if the backend lists the edges of a rule."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            BACKENDS[cls.name] = cls()

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        """Reasons why the backend cannot run the call; empty if it can."""
        raise NotImplementedError

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        """Remarks for the user."""
        return []

    def reads_bias_by_place(self, graph: AttentionGraph, request: Request) -> bool:
        """True if a call runs with a bias by place as it is, without a tensor of edges."""
        return False

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        """Approximate bytes that the forward pass holds beside its inputs."""
        raise NotImplementedError

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """The work of a call: a kind of :attr:`ns`, and the number of units."""
        raise NotImplementedError

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A graph and options of :func:`attention` for each kind of work; the first is trained."""
        return []

    def trials(self) -> list[tuple[str, list[AttentionGraph]]]:
        """Kinds of work that run on CUDA only if calibration finds them exact on these graphs.

        Exactness is that of half precision; the first graph is timed.
        """
        return []

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        """Attention on checked inputs."""
        raise NotImplementedError

    def cost_ms(self, graph: AttentionGraph, request: Request) -> float:
        """Estimated time of the forward pass in ms, to rank backends."""
        return self.rates(request.device.type)["call_ms"] + self.work_ms(
            request, *self.work(graph, request)
        )

    def least_ms(self, graph: AttentionGraph, request: Request) -> float:
        """A lower bound of :meth:`cost_ms` in ms, which takes less time to compute."""
        return self.rates(request.device.type)["call_ms"]

    def training(self, request: Request) -> float:
        """Time of forward and backward together, over that of the forward pass."""
        factor = self.rates(request.device.type)["training_factor"]
        if request.score_bias and not (request.by_place and self.place_bias_is_free):
            return factor * self.biased_training
        return factor

    def ranked(self, request: Request, forward_ms: float) -> float:
        """The time in ms by which backends are ranked: that of the passes that come, or the
        geometric mean of inference and training.
        """
        if request.trains is False:
            return forward_ms
        factor = self.training(request)
        if request.trains is None:
            factor = math.sqrt(factor)
        return forward_ms * factor

    def bare_cost(self, request: Request) -> float:
        """The time by which a call on few nodes is ranked."""
        return self.ranked(request, self.rates(request.device.type)["call_ms"])

    def work_ms(self, request: Request, kind: str, units: float) -> float:
        """Time in ms of a number of units of a kind of work."""
        rates = self.rates(request.device.type)
        share = 1.0
        if request.device.type == "cuda" and request.dtype in HALF:
            share = rates.get(in_halves(kind), self.halves.get(kind, 1.0))
        elif request.dtype == torch.bfloat16 and has_amx():
            share = self.amx.get(kind, 1.0)
        return self.numbers(request, kind) * units * rates[kind] * share * 1e-6

    def numbers(self, request: Request, kind: str) -> int:
        """Numbers of D + D_v of all heads and examples; those of narrow heads as ``least_width``."""
        least = 0
        if request.device.type == "cpu":
            least = self.least_width.get(kind, 0)
        widths = max(request.head_dim, least) + max(request.value_dim, least)
        return request.batch * request.heads * widths

    def rates(self, device: str = "cpu") -> dict[str, float]:
        """``call_ms``, ``training_factor`` and ``ns``: measured on this machine, else built-in."""
        if device != "cuda":
            device = "cpu"
        return {**self.built_in(device), **measured_rates(device).get(self.name, {})}

    def built_in(self, device: str = "cpu") -> dict[str, float]:
        """The rates of the class itself."""
        rates = {"call_ms": self.call_ms, "training_factor": self.training_factor, **self.ns}
        if device == "cuda":
            rates |= self.cuda
        return rates

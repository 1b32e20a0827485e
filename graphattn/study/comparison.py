"""A comparison: arms on the same data, the same model, the same training."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ..arguments import one_of, positive, several, shown, whole
from ..errors import OptionError
from .arms import Graphs, graphs_of
from .controls import CONTROLS, alone, everything, is_structured, permuted, rewired
from .data import Data
from .network import POSITIONS, READOUTS, Model
from .own import Own, network_of

METRICS = {"accuracy": "accuracy", "bits": "bits per answer (lower is better)"}
EQUAL = ("steps", "operations", "time")
_CODE = ("data.py", "network.py", "own.py", "trial.py")  # what a result depends on beside versions
_PACKAGES = ("graphattn", "torch", "numba")


@dataclass(frozen=True)
class Training:
    """How every arm is trained: AdamW, the same batches for all arms of a seed.

    Args:
        rate: Learning rate; or several, all tried for every trial: the best one on a validation split, a fifth of its
            training examples that none of them is trained on, is taken. The test is not looked at.
        table_rate: Of tables of positions; ``rate`` by default.
        schedule: "one-cycle", or "constant" after ``warmup`` steps.
        warmup: Steps.
        batch: Samples.
        weight_decay: Of AdamW; 0 is Adam.
        clip: Norm of the gradient above which it is scaled down.
        stop: Loss (a running mean) at which training ends before its steps are over; never by default.
    """

    rate: float | Sequence[float] = 1e-2
    table_rate: float | None = None
    schedule: str = "one-cycle"
    warmup: int = 20
    batch: int = 32
    weight_decay: float = 1e-2
    clip: float = 1.0
    stop: float | None = None

    def __post_init__(self) -> None:
        one_of(self.schedule, "schedule", ("one-cycle", "constant"))
        whole(self.batch, "batch", 1)
        if not self.rates or len(set(self.rates)) != len(self.rates):
            raise OptionError(f"rate must be a learning rate, or several that differ; got {self.rate!r}")
        for rate in self.rates:
            positive(rate, "rate")

    @property
    def rates(self) -> tuple[float, ...]:
        """All that are tried."""
        return tuple(self.rate) if isinstance(self.rate, Sequence) else (self.rate,)


@dataclass(frozen=True)
class Budget:
    """What every arm may spend.

    Args:
        examples: Samples that it is trained on; all by default.
        steps: Batches.
        equal: What arms have alike. "steps"; or "operations", counted, or "time", measured before training and written
            down: the costliest arm then takes ``steps``, and the others as many more as each is cheaper.
    """

    examples: int | None = None
    steps: int = 400
    equal: str = "steps"

    def __post_init__(self) -> None:
        one_of(self.equal, "equal", EQUAL)
        whole(self.steps, "steps", 1)
        if self.examples is not None:
            whole(self.examples, "examples", 1)


@dataclass(frozen=True)
class Trial:
    """One model trained once; ``of`` is the arm that a control is made of, ``draw`` which of its rewirings, ``budget``
    its number among the budgets."""

    comparison: str
    arm: str
    kind: str
    of: str
    positions: str
    examples: int | None
    steps: int
    seed: int
    draw: int
    key: str
    budget: int = 0


@dataclass(eq=False)
class Comparison:
    """Arms that differ in the graph alone, with their controls. Arguments as in :func:`run`."""

    name: str
    arms: dict[str, Any]
    data: Data
    readout: str = "mean"
    model: Model | Own = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    budgets: Sequence[Budget] = (Budget(),)
    positions: Sequence[str] = ("none",)
    controls: Sequence[str] = CONTROLS
    draws: int = 3
    token: int = 0
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if not isinstance(self.data, Data):
            raise OptionError(f"data must be study.Data(inputs, targets, test=...), got {shown(self.data)}")
        if not isinstance(self.arms, dict) or not self.arms:
            raise OptionError(f"arms must be a dict of graphs, recipes or functions of a sample, got {self.arms!r}")
        one_of(self.readout, "readout", READOUTS)
        if self.data.of_nodes != (self.readout == "node"):
            asked = "each node" if self.data.of_nodes else "each sample"
            raise OptionError(f"readout {self.readout!r} does not fit targets of {asked}: {self.data.targets.shape}")
        self.positions = tuple(one_of(p, "positions", POSITIONS) for p in several(self.positions, "positions", "list"))
        self.controls = tuple(one_of(c, "controls", CONTROLS) for c in several(self.controls, "controls", "list"))
        self.budgets = tuple(self.budgets)
        whole(self.token, "token", 0, below=self.data.num_nodes)
        if "rewired" in self.controls and whole(self.draws, "draws") < 3:
            raise OptionError(f"draws must be at least 3, as it matters which rewiring is drawn; got {self.draws}")
        one_of(self.metric, "metric", tuple(METRICS))
        self._check_model()
        self._check_budgets()
        network_of(self.model, self.data, self.readout, self.positions[0])  # refuses what cannot be built
        self.graphs = {name: graphs_of(name, arm, self.data, self.model.layers) for name, arm in self.arms.items()}
        self.kinds = {name: ("arm", name) for name in self.graphs}
        self.costs: dict[str, dict[str, dict[str, float]]] = {}
        self._add_controls()

    def __getstate__(self) -> dict[str, Any]:
        """What a trial needs: graphs travel with it, and arms may be functions that no file can hold."""
        return {name: value for name, value in vars(self).items() if name not in ("arms", "graphs", "kinds")}

    def _check_model(self) -> None:
        if not isinstance(self.model, Model | Own):
            raise OptionError(
                f"model must be study.Model(...), or study.Own(make, layers=L) for a module of your own; got "
                f"{shown(self.model)}"
            )
        if isinstance(self.model, Own) and self.positions != ("none",):
            raise OptionError(f"positions must be 'none' with study.Own, which is given places; got {self.positions}")
        for name, given in (("distance", "pos"), ("pairs", "pairs")):
            if name in self.positions and getattr(self.data, given) is None:
                raise OptionError(f"positions {name!r} have nothing to go by: give data.{given}")

    def _check_budgets(self) -> None:
        if not self.budgets or not all(isinstance(budget, Budget) for budget in self.budgets):
            raise OptionError(f"budgets must be study.Budget(...), one or several, got {shown(self.budgets)}")
        if len(set(self.budgets)) != len(self.budgets):
            raise OptionError(f"budgets must differ, got {self.budgets}")
        if isinstance(self.model, Own) and any(budget.equal == "operations" for budget in self.budgets):
            raise OptionError("equal operations are counted of study.Model; of study.Own give equal='time'")
        if len(self.training.rates) > 1 and any(budget.examples == 1 for budget in self.budgets):
            raise OptionError(
                "budgets must have 2 examples or more where several rates are tried: one is for validation"
            )

    def _add_controls(self) -> None:
        """What every comparison has by itself; ``permuted`` would let a causal arm read later nodes."""
        some, causal = next(iter(self.graphs.values())), self.data.causal
        own = {name: is_structured(graphs, causal) for name, graphs in self.graphs.items()}
        if "self" in self.controls:
            self._add("self", "self", alone(some))
        if "full" in self.controls:
            self._add("full", "full", everything(some, causal))
        for name in [name for name, structured in own.items() if structured]:
            if "permuted" in self.controls and not causal:
                self._add(f"permuted {name}", "permuted", permuted(self.graphs[name]), name)
            if "rewired" in self.controls:
                self.kinds[f"rewired {name}"] = ("rewired", name)
        if "shuffled" in self.controls:
            name = next((name for name, structured in own.items() if structured), next(iter(self.graphs)))
            self.kinds[f"shuffled labels, {name}"] = ("shuffled", name)

    def _add(self, name: str, kind: str, graphs: Graphs, of: str = "") -> None:
        if all(graphs.digest() != other.digest() for other in self.graphs.values()):  # an arm may be that already
            self.graphs[name], self.kinds[name] = graphs, (kind, of or name)

    @cached_property
    def edges(self) -> dict[str, str]:
        """A hash of the edges of each arm and each control that is drawn once."""
        return {name: graphs.digest() for name, graphs in self.graphs.items()}

    def graphs_for(self, trial: Trial) -> Graphs:
        """What a trial reads."""
        if trial.kind == "rewired":
            return self.rewiring(trial.of, trial.seed, trial.draw)
        return self.graphs[trial.of if trial.kind == "shuffled" else trial.arm]

    def rewiring(self, name: str, seed: int, draw: int) -> Graphs:
        """A rewiring of an arm, the same for the same seed and draw."""
        return rewired(self.graphs[name], self.draws * seed + draw, self.data.causal)

    def _read_by(self, name: str) -> str:
        """The name of the graphs that an arm or a control reads."""
        kind, of = self.kinds[name]
        return of if kind == "shuffled" else name

    def _edges_of(self, name: str, seed: int, draw: int) -> str:
        """What tells a rewiring from others: its edges; of samples' own graphs what it is drawn from, as thousands of
        them would take longer to draw than to train."""
        if self.graphs[name].each:
            return f"{self.edges[name]} rewired {self.draws * seed + draw}"
        return self.rewiring(name, seed, draw).digest()

    def identity(self) -> str:
        """A hash of all that must be the same when a study goes on."""
        given = [self.name, _digest(self.data), self.readout, self.token, self.model.described(self.data)]
        return _hash([*given, asdict(self.training), self.metric])

    def steps_of(self, arm: str, positions: str, budget: Budget) -> int:
        """Batches of an arm, so that all spend as much as the costliest."""
        if budget.equal == "steps":
            return budget.steps
        from .costs import measured

        known = measured(self, budget.equal)[positions]
        return round(budget.steps * max(known.values()) / known[self._read_by(arm)])

    def trials(self, seeds: int) -> Iterator[Trial]:
        """Every trial, seed by seed, so that an interrupted study has pairs."""
        base = [self.identity(), _versions()]
        for seed in range(seeds):
            for name, (kind, of) in self.kinds.items():
                budgets = list(enumerate(self.budgets))[-1 if kind == "shuffled" else 0 :]
                for draw in range(self.draws if kind == "rewired" else 1):
                    edges = self._edges_of(of, seed, draw) if kind == "rewired" else self.edges[self._read_by(name)]
                    for positions in self.positions:
                        for number, budget in budgets:
                            steps = self.steps_of(name, positions, budget)
                            what = [*base, edges, positions, budget.examples, steps, seed, kind == "shuffled"]
                            given = (positions, budget.examples, steps, seed, draw)
                            yield Trial(self.name, name, kind, of, *given, _hash(what), number)


def _digest(data: Data) -> str:
    tensors = (data.inputs, data.targets, data.test, data.pos, data.sizes, data.pairs)
    parts = [x.contiguous().numpy().tobytes() if isinstance(x, torch.Tensor) else repr(x).encode() for x in tensors]
    shapes = repr([tuple(x.shape) for x in tensors if isinstance(x, torch.Tensor)])
    return hashlib.sha256(b"|".join([shapes.encode(), repr(data.causal).encode(), *parts])).hexdigest()


def _versions() -> list[str]:
    """Of the packages that compute, and of the code that trains."""
    code = b"".join((Path(__file__).parent / name).read_bytes() for name in _CODE)
    return [*(metadata.version(name) for name in _PACKAGES), hashlib.sha256(code).hexdigest()]


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

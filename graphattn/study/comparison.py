"""A comparison: arms on the same data, the same model, the same training."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from .. import nulls
from ..arguments import one_of, positive, shown, whole
from ..errors import GraphError, OptionError
from ..nulls.drawn import swapped
from .arms import (
    ALL_CONTROLS,
    CONTROLS,
    DRAWN,
    REWIRED,
    Graphs,
    graphs_of,
    is_other,
    is_structured,
    reach_matched,
)
from .data import CONTROL, METRICS, Data, check_data
from .network import POSITIONS, READOUTS, CustomModel, Model, network_of
from .records import as_json

EQUAL = ("steps", "operations")
#: Names of controls of an arm.
_NAMES = {
    "rewired": "rewired {}",
    "in-degrees": "in-degrees of {}",
    "reach-matched": "reach-matched {}",
}
OWN_POSITIONS = "the module's"
"""Positions of :class:`CustomModel`: what its module makes of the places, if anything, is not
known.
"""


@dataclass(frozen=True)
class Training:
    """Settings of training, the same for every arm: AdamW, with the same batches for all of a seed.

    Args:
        rate: Learning rate; or several, all tried for every trial: the best one on a validation
            split, a fifth of its training examples that none of them is trained on, is taken. The
            test is not looked at.
        table_rate: Of tables of positions; ``rate`` by default.
        schedule: "one-cycle", or "constant" after ``warmup`` steps.
        warmup: Steps.
        batch: Samples.
        weight_decay: Of AdamW; 0 is Adam.
        clip: Norm of the gradient above which it is scaled down.
        stop: Loss (a running mean) at which training ends before its steps are over; never by
            default.
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
        for name in ("batch", "warmup"):
            whole(getattr(self, name), name, 1)
        for rate in (*self.rates, self.clip):
            positive(rate, "rate and clip")
        if not self.rates or len(set(self.rates)) != len(self.rates):
            raise OptionError(
                f"rate must be a learning rate, or several that differ; got {self.rate!r}"
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that are tried."""
        if isinstance(self.rate, Sequence):
            return tuple(self.rate)
        return (self.rate,)


@dataclass(frozen=True)
class Budget:
    """A budget that every arm has.

    Args:
        examples: Samples that it is trained on; all by default.
        steps: Batches.
        equal: What arms have alike. "steps", of batches; or "operations" of a forward pass,
            counted of the encoder: the costliest arm then takes ``steps``, and the others as many
            more as each is cheaper. Those of chosen edges are of all that may be chosen.
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
    """One model trained once.

    ``of`` is the arm of a control, ``draw`` the number of its drawing, ``budget`` the number of the
    budget.
    """

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
    """Arms that differ in the graph alone, with their controls.

    Args:
        name: The comparison's name.
        arms: By name, a graph, a pattern or recipe, a function of a :class:`Sample` that gives its
            graph, or a list with one graph for each layer.
        data: Samples and what is asked about them.
        readout: "mean" of the nodes, "token" (the first one, or ``token``), "node" or "edge".
        model: Sizes of the encoder, the same for all arms; or :class:`CustomModel`.
        training: Settings of training, the same for all arms.
        budgets: :class:`Budget`, one or several.
        positions: One or several of "none", "learned", "relative", "rotary", "alibi", "distance"
            and "pairs".
        controls: Kinds of controls: "self", "full", "rewired", "permuted", "shuffled",
            "in-degrees" and "reach-matched".
        draws: Rewirings of an arm for each seed, 3 or more.
        token: Node that is read out by "token".
        metric: Score by which arms are compared: "accuracy", "bits" or "macro_f1" of classes, those
            and "ap" of labels, "r2" or "mae" of numbers; accuracy or R2 by default.
        permutations: Permutations of an arm for each seed; 1 is one for all seeds.
    """

    name: str
    arms: dict[str, Any]
    data: Data
    readout: str = "mean"
    model: Model | CustomModel = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    budgets: Sequence[Budget] = (Budget(),)
    positions: Sequence[str] = ("none",)
    controls: Sequence[str] = CONTROLS
    draws: int = 3
    token: int = 0
    metric: str = ""
    permutations: int = 3

    def __post_init__(self) -> None:
        for name in (self.name, *self.arms):
            check_name(name, "names")
        self._read_settings()
        self._check_readout()
        is_own = isinstance(self.model, CustomModel)
        if is_own:
            self.positions = (OWN_POSITIONS,)
        floats = None if is_own else torch.float32
        check_data(self.data, self.readout, self.token, floats)
        with torch.random.fork_rng(devices=[]):
            # refuses what cannot be built
            network_of(self.model, self.data, self.readout, self.positions[0])
        self.graphs = {
            name: graphs_of(name, arm, self.data, self.model.layers)
            for name, arm in self.arms.items()
        }
        if self.data.causal:
            for name, graphs in self.graphs.items():
                possible = graphs.possible()
                for graph in dict.fromkeys((*possible.layers, *possible.each)):
                    if not graph.is_causal:
                        raise GraphError(
                            f"arm {name!r} reads later nodes, {graph!r}, in causal data; give a "
                            "causal graph, or causal=False"
                        )
        self.kinds = {name: ("arm", name) for name in self.graphs}
        #: A hash of the edges of each arm and each control that is drawn once.
        self.edges = {name: graphs.digest() for name, graphs in self.graphs.items()}
        #: Controls that do not exist, with the reason.
        self.missing: dict[str, str] = {}
        self._add_controls()

    def _read_settings(self) -> None:
        """Make tuples of positions, controls and budgets, and check the numbers beside them."""
        if isinstance(self.model, CustomModel) and self.positions == OWN_POSITIONS:
            self.positions = ("none",)
        self.positions = _words(self.positions, "positions", POSITIONS)
        self.controls = _words(self.controls, "controls", ALL_CONTROLS)
        if isinstance(self.budgets, Budget):
            self.budgets = (self.budgets,)
        self.budgets = tuple(self.budgets)
        if not self.positions or not self.budgets or not self.arms:
            raise OptionError("arms, positions and budgets must be one or several, got none")
        if len(set(self.budgets)) != len(self.budgets):
            raise OptionError(f"budgets must differ, got {self.budgets}")
        size = max(1, self.data.num_nodes)
        whole(self.token, "token", 0, below=size, of=", the number of nodes")
        if {*REWIRED} & {*self.controls} and self.draws < 3:
            raise OptionError(
                f"draws must be at least 3, as it matters which rewiring is drawn; got {self.draws}"
            )
        whole(self.permutations, "permutations", 1)
        least = min(len(self.data.split(0, budget.examples)[0]) for budget in self.budgets)
        if len(self.training.rates) > 1 and least == 1:
            raise OptionError(
                "budgets must have 2 examples or more where several rates are tried: one is for "
                "validation"
            )

    def _check_readout(self) -> None:
        """Refuse a readout, a metric, a model or positions that do not fit the data."""
        one_of(self.readout, "readout", READOUTS)
        answering = self.readout if self.readout in ("node", "edge") else "sample"
        if self.data.of != answering:
            raise OptionError(
                f"readout {self.readout!r} does not fit targets of each {self.data.of}: "
                f"{self.data.targets.shape}"
            )
        kind = self.data.kind
        self.metric = self.metric or CONTROL[kind]
        fitting = tuple(name for name, metric in METRICS.items() if kind in metric.kinds)
        one_of(self.metric, "metric", fitting)
        if isinstance(self.model, CustomModel):
            if self.readout == "edge":
                raise OptionError("readout 'edge' requires study.Model, which joins both ends")
            if any(budget.equal != "steps" for budget in self.budgets):
                raise OptionError("equal operations are counted of study.Model; give equal='steps'")
            if self.positions != ("none",):
                raise OptionError(
                    "positions must be 'none' with study.CustomModel, which is given places; got "
                    f"{self.positions}"
                )
        for name, argument in (("distance", "pos"), ("pairs", "pairs")):
            if name in self.positions and getattr(self.data, argument) is None:
                raise OptionError(f"positions {name!r} have nothing to go by: give data.{argument}")

    def __getstate__(self) -> dict[str, Any]:
        """The state of a trial with its graphs, as pickle cannot save functions of arms."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("arms", "graphs", "kinds")
        }

    def _add_controls(self) -> None:
        """Add the standard controls; ``permuted`` would let a causal arm read later nodes."""
        first_graphs = next(iter(self.graphs.values()))
        causal = self.data.causal
        structured = [name for name, graphs in self.graphs.items() if is_structured(graphs, causal)]
        first = next(iter(self.graphs))
        if "self" in self.controls:
            self._add("self", "self", "self", first_graphs.map(nulls.alone))
        if "full" in self.controls:
            self._add("full", "full", "full", first_graphs.everything(causal))
        for name in structured:
            if "permuted" in self.controls and not causal:
                control = f"permuted {name}"
                # drawn for each seed, or one for all seeds
                if self.permutations == 1:
                    self._add(control, "permuted", name, self.graphs[name].map(nulls.permuted))
                else:
                    self._name(control, "permuted", name)
            self._add_rewirings(name)
        if "shuffled" in self.controls:
            name = [*structured, first][0]
            self._name(f"shuffled labels, {name}", "shuffled", name)

    def _add_rewirings(self, name: str) -> None:
        """Controls of other edges; in-degrees alone where no other graph has both degrees."""
        kinds = [kind for kind in REWIRED if kind in self.controls]
        if "rewired" in kinds and not self._is_drawn("rewired", name):
            kinds.remove("rewired")
            self.missing[f"rewired {name}"] = (
                f"none exists: swaps find no other graph with the degrees of {name}; there is a "
                "control of the same in-degrees instead, whose nodes may depend on more or on fewer"
            )
            if "in-degrees" not in kinds:
                kinds.append("in-degrees")
        if "reach-matched" in kinds:
            why = self._why_not_matched(name)
            if why:
                kinds.remove("reach-matched")
                self.missing[f"reach-matched {name}"] = f"none exists: {why}"
        for kind in kinds:
            self._name(_NAMES[kind].format(name), kind, name)

    def _why_not_matched(self, name: str) -> str:
        """The reason why no rewiring of an arm has its reach; nothing if some do."""
        layers = self.graphs[name].layers
        if len(set(layers)) > 1:
            return "layers of the arm differ, and reach is matched of equal layers"
        try:
            if self._is_drawn("reach-matched", name):
                return ""
        except GraphError as error:
            return str(error)
        return f"swaps find no other graph with the degrees and the reach of {name}"

    def _is_drawn(self, kind: str, name: str) -> bool:
        """True if a drawing is another graph; swaps of a star, for one, are none.

        A few samples' own graphs are looked at, then all of them.
        """
        graphs = self.graphs[name]
        for draw in range(self.draws):
            if is_other(graphs.few(), self.drawn(kind, name, 0, draw, few=True)):
                return True
        return bool(graphs.each) and is_other(graphs, self.drawn(kind, name, 0, 0))

    def _add(self, name: str, kind: str, of: str, graphs: Graphs) -> None:
        digest = graphs.digest()
        if digest not in self.edges.values():  # an arm may be that already
            self._name(name, kind, of)
            self.graphs[name] = graphs
            self.edges[name] = digest

    def _name(self, name: str, kind: str, of: str) -> None:
        if name in self.kinds:
            raise OptionError(
                f"arms: {name!r} is the name of a control, and the arm another graph; give it "
                "another name"
            )
        self.kinds[name] = (kind, of)

    def graphs_for(self, trial: Trial) -> Graphs:
        """The graphs of a trial."""
        return self.graphs_of(trial.arm, trial.seed, trial.draw)

    def graphs_of(self, name: str, seed: int = 0, draw: int = 0) -> Graphs:
        """The graphs of an arm or a control; of one that is drawn, the first drawing by default."""
        kind, of = self.kinds[name]
        if kind in DRAWN and name not in self.graphs:
            return self.drawn(kind, of, seed, draw)
        return self.graphs[self.read_by(name)]

    def draws_of(self, name: str) -> int:
        """The number of drawings of a control for each seed."""
        return self._draws(self.kinds[name][0])

    def _draws(self, kind: str) -> int:
        if kind == "permuted":
            return self.permutations
        if kind in DRAWN:
            return self.draws
        return 1

    def drawn(self, kind: str, name: str, seed: int, draw: int, few: bool = False) -> Graphs:
        """A control of an arm by seed and draw, or controls of a few samples' own graphs."""
        graphs = self.graphs[name]
        if few:
            graphs = graphs.few()
        number = self._draws(kind) * seed + draw
        if kind == "reach-matched":
            return reach_matched(graphs, number, self.model.layers)
        makers: dict[str, Any] = {
            "permuted": nulls.permuted,
            "rewired": swapped,
            "in-degrees": partial(nulls.same_in_degrees, is_causal=self.data.causal),
        }
        return graphs.map(lambda graph: makers[kind](graph, number))

    def read_by(self, name: str) -> str:
        """The name of the graphs that an arm or a control reads."""
        kind, of = self.kinds[name]
        if kind == "shuffled":
            return of
        return name

    def edges_of(self, name: str, seed: int, draw: int) -> str:
        """The identity of what an arm or a control reads: its edges.

        Of a drawing of samples' own graphs it is what they are drawn from: thousands of them would
        take longer to draw than to train.
        """
        kind, of = self.kinds[name]
        read = self.read_by(name)
        if read in self.edges:
            return self.edges[read]
        if not self.graphs[of].each:
            return self.drawn(kind, of, seed, draw).digest()
        return f"{self.edges[of]} {kind} {self._draws(kind) * seed + draw}"

    def identity(self) -> str:
        """A hash of all that must be the same when a study goes on."""
        values = [
            self.name,
            _digest(self.data),
            self.readout,
            self.token,
            self.model.described(self.data),
            asdict(self.training),
            self.metric,
        ]
        return short_hash(values)


def check_name(name: str, argument: str) -> None:
    """Refuse what cannot stand in a table, in a figure and in JSON.

    Raises:
        OptionError: If it is no line of text.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise OptionError(
            f"{argument} must be lines of text that can be printed, got {shown(name)}"
        )


def _words(value: Any, argument: str, choices: Sequence[str]) -> tuple[str, ...]:
    """One or several of the choices, each once."""
    words = [value] if isinstance(value, str) else list(value)
    result = tuple(one_of(word, argument, choices) for word in words)
    if len(set(result)) != len(result):
        raise OptionError(f"{argument} must differ, got {', '.join(result)}")
    return result


def _digest(data: Data) -> str:
    tensors = (data.inputs, data.targets, data.test, data.pos, data.sizes, data.pairs)
    shapes = []
    parts = []
    for x in tensors:
        if isinstance(x, torch.Tensor):
            shapes.append(tuple(x.shape))
            parts.append(x.contiguous().numpy().tobytes())
        else:
            parts.append(repr(x).encode())
    head = [repr(shapes).encode(), repr(data.causal).encode()]
    splits = {"asked_edges": data.asked_edges, "validation": data.validation}
    for name, part in (splits | (data.groups or {})).items():
        if part is not None:  # data without them has the hash of before there were any
            parts.append(name.encode() + part.contiguous().numpy().tobytes())
    return hashlib.sha256(b"|".join([*head, *parts])).hexdigest()


def short_hash(values: Any) -> str:
    """The first digits of a hash of plain values."""
    text = json.dumps(values, sort_keys=True, default=as_json)
    return hashlib.sha256(text.encode()).hexdigest()[:20]

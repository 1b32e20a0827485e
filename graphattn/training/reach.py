"""What a simulator reads beside how far its data moves in a step, as measured on a trajectory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Hierarchy
from ..graphs.points.sphere import degrees
from ..models import Simulator, Window
from ..nn import relative_positions
from ..shapes import Trajectory

_TARGETS = 8  # nodes from which gradients are followed
_CHANGES = 512  # that are looked for at the step before
_DISTANCES = 1 << 24  # between nodes, at once
_SHARE = 0.95  # of changes, or of moves
_NEAR = 0.1  # of a change that may be missing
_NAMED = 3  # nodes that are named


@dataclass(frozen=True)
class Reach:
    """Distances in the units of positions.

    Attributes:
        read: Distance below which a node reads every other, by gradients of a step's state: the
            median over some nodes; ``None`` if they read all.
        edge: Mean length of an edge of the finest graph; 0 if there is none.
        moved: Distance that covers 95 % of what moves in a step; ``None`` if it cannot be known.
            Of nodes that move the way; of fields the distance of the nearest node that bounds, at
            the step before, the next value of a node with a large change, from the other side.
        moves: True for nodes that move.
    """

    read: float | None
    edge: float
    moved: float | None
    moves: bool

    @property
    def is_enough(self) -> bool:
        """True unless a step is known to move things farther than the model reads."""
        return self.moved is None or self.read is None or self.needed < self.read

    @property
    def needed(self) -> float:
        """Distance to be read: nodes that move come from two sides."""
        if self.moves:
            return 2 * (self.moved or 0.0)
        return self.moved or 0.0

    def in_words(self, step: str, unit: str) -> str:
        """The comparison; ``step`` is a step of time, such as "6 h", ``unit`` of positions."""
        read = "the model reads all nodes, however far"
        if self.read is not None:
            read = f"the model reads every node nearer than {self._length(self.read, unit)}"
        if self.moved is None:
            return f"{read}; how far things move in a step cannot be read off the fields"
        way = self._length(self.moved, unit)
        if self.moves:
            words = (
                f"nodes move by up to {way} in a step of {step} (95 % of them), and two meet from "
                "twice that"
            )
        else:
            words = (
                f"fronts move by up to {way} in a step of {step}, as nodes take on values between "
                "those that lay within that distance before (95 % of large changes)"
            )
        if self.is_enough:
            return f"{words}; {read}"
        return f"{words}; but {read}: take more layers, a graph of longer edges, or a shorter step"

    def _length(self, distance: float, unit: str) -> str:
        words = f"{distance:.3g} {unit}".rstrip()
        if self.edge:
            return f"{words} ({distance / self.edge:.1f} edges)"
        return words


def reach_of(model: Simulator, trajectory: Trajectory, levels: Hierarchy) -> Reach:
    """The reach of a model on a trajectory, whose first graphs are ``levels``."""
    level = levels.levels[0]
    edge = 0.0
    if level.graphs and level.graph.num_edges:
        edge = float(relative_positions(level.graph, level.pos).norm(dim=1).mean())
    moves = trajectory.pos.dim() == 3
    if moves:
        ways = trajectory.pos.double().diff(dim=0).norm(dim=2)
        moved = _covering([ways[ways > 0]])
    else:
        moved = _front(trajectory, model.window)
    return Reach(_read(model, trajectory, levels), edge, moved, moves)


def _read(model: Simulator, trajectory: Trajectory, levels: Hierarchy) -> float | None:
    """Median distance of the nearest node that is not read, by gradients of a step's state."""
    device = model.mean.device
    x, _ = model.window(trajectory, model.window.history - 1)
    free = torch.nonzero(_free(trajectory, model.window).any(1)).flatten()
    if not len(free):
        return 0.0
    targets = free[torch.linspace(0, len(free) - 1, min(_TARGETS, len(free))).long()]
    pos = trajectory.positions(model.window.history - 1).double()
    was_training = model.training
    model.eval()
    with torch.enable_grad():
        x = x.to(device).requires_grad_()
        state = model(x, levels.to(device))[:, 0].sum(1)
        nearest = []
        for target in targets.tolist():
            (gradient,) = torch.autograd.grad(state[target], x, retain_graph=True)
            unread = (gradient == 0).all(1).cpu()
            unread[target] = False
            distance = (pos[unread] - pos[target]).norm(dim=1)
            nearest.append(float(distance.min()) if len(distance) else float("inf"))
    model.train(was_training)
    median = float(torch.tensor(nearest).median())
    if median == float("inf"):
        return None
    return median


def _free(trajectory: Trajectory, window: Window) -> Tensor:
    """bool (N, C), what is predicted."""
    _, truth = window(trajectory, window.history - 1)
    return truth[:, 0] > 0


def _front(trajectory: Trajectory, window: Window) -> float | None:
    """Distance within which most nodes with a large change find a bound on it at the step before.

    By the maximum principle of transport and of diffusion: a next value lies between values that
    were near.
    """
    pos = trajectory.pos.float()
    free = _free(trajectory, window)
    found = []
    for channel, states in enumerate(window.states(trajectory).float().unbind(2)):
        before = states[:-1]
        after = states[1:]
        size = max(window.change[channel], 1e-30)
        is_large = ((after - before).abs() >= size) & free[:, channel]
        pairs = torch.nonzero(is_large)
        number = min(len(pairs), _CHANGES, max(1, _DISTANCES // len(pos)))
        if not number:
            continue
        steps, nodes = pairs[torch.linspace(0, len(pairs) - 1, number).long()].T
        start = before[steps, nodes]
        end = after[steps, nodes]
        # where the value before is as far as the next one, but for a share
        side = (end - start).sign()[:, None]
        bounds = side * (before[steps] - (end - _NEAR * (end - start))[:, None]) >= 0
        distance = torch.cdist(pos[nodes], pos).where(bounds, torch.inf)
        found.append(distance.amin(1))
    return _covering(found)


def _covering(distances: list[Tensor]) -> float | None:
    """Distance that covers 95 % of each of some sets; ``None`` if there is none."""
    shares = [
        float(part.flatten().sort().values[int(_SHARE * (part.numel() - 1))])
        for part in distances
        if part.numel()
    ]
    largest = max(shares, default=float("inf"))
    if largest == float("inf"):
        return None
    return largest


def isolated_nodes(trajectory: Trajectory, levels: Hierarchy) -> str:
    """A note on the nodes that read no other, of a model of one level; "" for none."""
    if len(levels.levels) > 1 or trajectory.pos.dim() == 3 or not levels.levels[0].graphs:
        return ""
    alone = torch.ones(trajectory.num_nodes, dtype=torch.bool)
    for graph in levels.levels[0].graphs:
        alone &= graph.without_self_loops().in_degree.cpu() == 0
    nodes = alone.nonzero().flatten()
    if not len(nodes):
        return ""
    pos = trajectory.positions(0)
    on_globe = degrees(pos)
    if on_globe is not None:
        pos = torch.stack(on_globe, 1)
    places = [", ".join(f"{x:.4g}" for x in pos[node].tolist()) for node in nodes[:_NAMED]]
    kind = "latitude and longitude " * (on_globe is not None)
    pairs = zip(nodes.tolist(), places, strict=False)
    named = "; ".join(f"node {node} at {kind}{place}" for node, place in pairs)
    more = ", ..." * (len(nodes) > _NAMED)
    return (
        f"{trajectory.name}: {len(nodes):,} of {len(alone):,} nodes read no other ({named}{more}): "
        "a graph of longer edges, or knn(..., 8)"
    )

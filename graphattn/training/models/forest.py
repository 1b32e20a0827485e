"""A random forest on descriptors: local covariances of points, histograms over pairs of points."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import whole
from ...errors import need_extra
from ...graphs import Hierarchy
from ...nn.points.descriptors import shape_descriptors

_TREES, _MOST = 100, 60_000  # points that the trees are grown on
_ROWS = 4096  # points that are read at once


class Forest(nn.Module):
    """Trees of scikit-learn as tensors; its output is that of a model of the task."""

    root: Tensor
    left: Tensor
    right: Tensor
    feature: Tensor
    threshold: Tensor
    value: Tensor

    def __init__(
        self, features: int, out_dim: int, *, readout: str = "node", trees: int = _TREES
    ) -> None:
        super().__init__()
        self.out_dim = out_dim
        self.readout = readout
        self.trees = whole(trees, "trees", 1)
        for name in ("root", "left", "right", "feature"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("value", torch.zeros(0, out_dim))

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers():  # as large as the trees are
            if prefix + name in state:
                setattr(self, name, buffer.new_empty(state[prefix + name].shape))
        super()._load_from_state_dict(state, prefix, *rest)

    @property
    def is_grown(self) -> bool:
        """True once trees are grown or loaded."""
        return len(self.root) > 0

    def rows(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Descriptors of each point, or of each shape."""
        if self.readout == "node":
            return x
        level = shape.levels[0]
        if level.batch is None:
            sizes = [len(x)]
        else:
            sizes = torch.bincount(level.batch).tolist()
        if level.normals is None:
            normals = [None] * len(sizes)
        else:
            normals = level.normals.split(sizes)
        return torch.stack(
            [
                shape_descriptors(*one)
                for one in zip(level.pos.split(sizes), normals, x.split(sizes), strict=True)
            ]
        )

    def fit(self, task: Any, batches: Any, seed: int) -> "Forest":
        """Grow the trees on packed batches of shapes with labels."""
        try:
            from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
        except ModuleNotFoundError:
            raise need_extra("scikit-learn", "train") from None
        pairs = [(self.rows(batch.x, Hierarchy.join(batch.levels)), batch.y) for batch in batches]
        x, y = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        if task.classes:
            rows = (y >= 0).nonzero().flatten()
            target = y
            kind = partial(RandomForestClassifier, max_features="sqrt")
        else:
            rows = torch.arange(len(y))
            target = (y.double() - task.mean) / task.deviation
            kind = partial(RandomForestRegressor, max_features=1 / 3)
        if len(rows) > _MOST:
            rows = rows[
                torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_MOST]
            ]
        if self.readout == "shape":
            leaf = 1
        else:
            leaf = 3
        threads = torch.get_num_threads()
        forest = kind(self.trees, min_samples_leaf=leaf, random_state=seed, n_jobs=threads)
        forest.fit(x[rows].numpy(), target[rows].numpy())
        first = 0
        parts: dict[str, list[Tensor]] = {name: [] for name, _ in self.named_buffers()}
        columns: Any = slice(None)
        if task.classes:
            columns = torch.as_tensor(forest.classes_).long()
        for estimator in forest.estimators_:
            tree = estimator.tree_
            leaf_at = torch.from_numpy(tree.children_left) < 0
            nodes = torch.arange(first, first + len(leaf_at))
            for name in ("left", "right"):
                child = torch.from_numpy(getattr(tree, f"children_{name}"))
                parts[name].append(torch.where(leaf_at, nodes, child + first).int())
            parts["root"].append(torch.tensor([first], dtype=torch.int32))
            parts["feature"].append(torch.from_numpy(tree.feature).clamp(min=0).int())
            parts["threshold"].append(torch.from_numpy(tree.threshold.copy()))
            value = torch.zeros(len(nodes), self.out_dim)
            value[:, columns] = torch.from_numpy(tree.value[:, 0]).float()
            parts["value"].append(value)
            first += len(nodes)
        for name, several in parts.items():
            setattr(self, name, torch.cat(several))
        return self

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Logarithms of probabilities, or numbers in deviations, (N, out) or (B, out)."""
        rows = self.rows(x, shape)
        mean = torch.cat([self._mean(part) for part in rows.split(_ROWS)])
        if self.out_dim > 1:
            return mean.clamp(min=1e-9).log()
        return mean

    def _mean(self, x: Tensor) -> Tensor:
        node = self.root.long().expand(len(x), -1)
        while True:
            below = x.gather(1, self.feature[node].long()).double() <= self.threshold[node]
            after = torch.where(below, self.left[node], self.right[node]).long()
            if torch.equal(after, node):
                return self.value[node].mean(1)
            node = after

"""A network and a forest beside it: the better one answers, or both.

The choice is made on the validation part alone, and is kept with the parameters. There it is the
forest unless another is better by more than chance explains: the epoch of the network was chosen by
that part, and of eight scans it is often one. Few whole shapes are answered across folds instead,
each by a network and a forest that have not seen it, and the highest score answers.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs import Hierarchy
from ...models import UNet
from ...statistics.paired import limits
from ..options import Schedule
from ..reading.data import Prepared
from ..running.loop import answers_of
from ..tasks import Task
from .forest import Forest

#: Candidates, and the share that the forest has in the answers of each.
SHARES = {"forest": 1.0, "mean": 0.5, "network": 0.0}
#: Parts of the answers, each of which is left out once.
_BLOCKS = 20
_PENALTIES = tuple(10.0**power for power in range(-3, 4))


class Best(nn.Module):
    """A network and a random forest; answers are those of one of them, or their mean.

    Args:
        features: Width of the points' features, all of which the forest reads.
        out_dim: Width of the answer.
        readout: "node" or "shape".
        trees: Of the forest.
        network: A class of models, such as :class:`graphattn.models.MeshTransformer`.
        network_features: The number of the first features, which the network reads; by default all
            but those of the linear model.
        linear_features: The number of the last features, which a linear model of one number of a
            shape reads, such as counts of its elements; network and forest learn what it leaves.
        options: Other arguments of the network.
    """

    linear: Tensor
    intercept: Tensor
    rest_deviation: Tensor
    share: Tensor
    scores: Tensor
    folds: Tensor

    def __init__(
        self,
        features: int,
        out_dim: int,
        *,
        readout: str = "node",
        trees: int = 100,
        network: Callable[..., nn.Module] = UNet,
        network_features: int | None = None,
        linear_features: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.out_dim = out_dim
        if network_features is None:
            network_features = features
        self.network_features = min(features - linear_features, network_features)
        self.network = network(self.network_features, out_dim, readout=readout, **options)
        self.forest = Forest(features, out_dim, readout=readout, trees=trees)
        self.register_buffer("linear", torch.zeros(linear_features))
        self.register_buffer("intercept", torch.zeros(()))
        self.register_buffer("rest_deviation", torch.ones(()))  # of what the linear model leaves
        self.register_buffer("share", torch.zeros(()))
        self.register_buffer("scores", torch.full((len(SHARES),), torch.nan))
        self.register_buffer("folds", torch.zeros(()))

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Logits, logarithms of probabilities, or numbers in deviations: (N, out) or (B, out)."""
        output = self._member_output(x, shape)
        if not len(self.linear):
            return output
        return self.rest_deviation * output + self._linear(x, shape)

    def _member_output(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Output of the member that answers, or the mean of both."""
        share = float(self.share)
        if share == 0:
            output: Tensor = self.network(x[:, : self.network_features], shape)
            return output
        trees: Tensor = self.forest(x, shape)
        if share == 1:
            return trees
        output = self.network(x[:, : self.network_features], shape)
        if self.out_dim == 1:
            return (1 - share) * output + share * trees
        mean = (1 - share) * output.softmax(-1) + share * trees.softmax(-1)
        return mean.clamp(min=1e-9).log()

    def _linear(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Part of the linear model in the numbers (B, 1), in deviations; no product in bfloat16."""
        weighted = self._counts(x, shape) * self.linear
        return weighted.sum(1, keepdim=True) + self.intercept

    def _counts(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """The features of the linear model, which all points of a shape have, (B, ...)."""
        counts = x[:, -len(self.linear) :]
        batch = shape.levels[0].batch
        if batch is None:
            return counts[:1]
        return counts[torch.searchsorted(batch, torch.arange(shape.num_clouds).to(batch))]

    def fit_linear(self, task: Task, batches: Iterable[Any]) -> None:
        """Fit the linear model to packed batches of shapes with labels: a ridge regression.

        Its penalty is that with the least error in leaving one shape out.
        """
        from sklearn.linear_model import RidgeCV

        pairs = [
            (self._counts(batch.x, Hierarchy.join(batch.levels)), batch.y) for batch in batches
        ]
        counts, y = (torch.cat(parts).double() for parts in zip(*pairs, strict=True))
        target = (y - task.mean) / task.deviation
        found = RidgeCV(_PENALTIES).fit(counts.numpy(), target.numpy())
        self.linear.copy_(torch.from_numpy(found.coef_))
        self.intercept.fill_(float(found.intercept_))
        rest = target - torch.from_numpy(found.predict(counts.numpy()))
        self.rest_deviation.copy_(rest.std(correction=0).clamp(min=1e-6))

    def fit_forest(self, task: Task, batches: Iterable[Any], seed: int) -> None:
        """Grow the trees on packed batches of shapes with labels."""

        def without_linear(batch: Any) -> Any:
            part = self._linear(batch.x, Hierarchy.join(batch.levels))[:, 0]
            rest = (batch.y.double() - task.mean) / task.deviation - part
            batch.y = rest / self.rest_deviation * task.deviation + task.mean
            return batch

        if len(self.linear):
            batches = map(without_linear, batches)
        self.forest.fit(task, batches, seed)

    def only_network(self) -> None:
        """Answer as the network, which is in training, and undo a choice."""
        self.share.fill_(0)
        self.scores.fill_(torch.nan)
        self.folds.fill_(0)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of what can answer: the network alone until the trees are grown."""
        if self.forest.is_grown:
            return tuple(SHARES)
        return ("network",)

    def answer_as(self, name: str) -> None:
        """Answer from now on as one of the candidates."""
        self.share.fill_(SHARES[name])

    def predictions(self, task: Task, data: Prepared, schedule: Schedule) -> dict[str, Tensor]:
        """What each candidate predicts for some shapes, or for their points, (N,)."""
        chosen = float(self.share)
        answers: dict[str, Tensor] = {}
        for name in ("network", "forest"):
            if name in self.candidates:
                self.answer_as(name)
                answers[name] = torch.cat(answers_of(self, task, data, schedule)[0])
        if "mean" in self.candidates:
            answers["mean"] = (answers["network"] + answers["forest"]) / 2
        self.share.fill_(chosen)
        return {name: task.predictions(answers[name]) for name in self.candidates}

    def choose(
        self, task: Task, predictions: dict[str, Tensor], labels: Tensor, folds: int = 0
    ) -> None:
        """Answer from now on as the best of the forest and those that are better than it.

        Across folds, each of whose answers is of a model that has not seen the shape, a higher
        score is better. On a validation part, which has chosen the network's epoch and may be one
        scan, the 95 % interval of :func:`advantage` must lie above 0.

        Args:
            task: The learned task.
            predictions: Of each candidate, for shapes that it was not trained on.
            labels: (N,).
            folds: The number of folds that these come from; 0 is the validation part.
        """
        best = "forest"
        scores = {name: task.scores(predictions[name], labels)[task.metric] for name in SHARES}
        for name in SHARES:
            if not scores[name] > scores[best]:
                continue
            if folds or advantage(task, predictions[name], predictions["forest"], labels)[0] > 0:
                best = name
        self.folds.fill_(folds)
        self.scores.copy_(torch.tensor(list(scores.values())))
        self.answer_as(best)

    def choice(self) -> dict[str, Any]:
        """The chosen candidate, the score of each on the validation part or folds, and the margin.

        A candidate whose answers are not finite has no score.
        """
        name = next(key for key, share in SHARES.items() if share == self.share)
        pairs = zip(SHARES, self.scores.tolist(), strict=True)
        scores = {key: score for key, score in pairs if math.isfinite(score)}
        others = [score for key, score in scores.items() if key != name]
        margin = None
        if name in scores and others:
            margin = scores[name] - max(others)
        return {
            "name": name,
            "validation": scores,
            "margin": margin,
            "folds": int(self.folds),
        }


def advantage(
    task: Task, predictions: Tensor, others: Tensor, labels: Tensor
) -> tuple[float, float]:
    """Limits of the 95 % interval of how much more some predictions score than others do.

    The score is taken again without each of 20 parts of the answers (a jackknife), and the t
    interval is that of the pseudo-values. A part is a run of consecutive points, as neighbours in a
    scan are right or wrong together; shapes, which stand class by class, are drawn at random.

    Args:
        task: Task with the metric of the scores.
        predictions: (N,).
        others: (N,), of the same shapes or points.
        labels: (N,).

    Source: Tukey 1958, "Bias and confidence in not-quite large samples"; Kunsch 1989, "The
    jackknife and the bootstrap for general stationary observations".
    """
    blocks = min(_BLOCKS, len(labels))
    if blocks < 2:
        return -math.inf, math.inf
    block = torch.arange(len(labels)) * blocks // len(labels)
    if task.readout == "shape":
        block = block[torch.randperm(len(block), generator=torch.Generator().manual_seed(0))]

    def difference(mask: Tensor) -> float:
        """Difference of the scores of two sets of answers, of those in the mask."""
        pair = [
            task.scores(answers[mask], labels[mask])[task.metric]
            for answers in (predictions, others)
        ]
        return float(pair[0] - pair[1])

    full_difference = difference(block >= 0)
    without_block = [difference(block != number) for number in range(blocks)]
    pseudo_values = [blocks * full_difference - (blocks - 1) * value for value in without_block]
    if not all(map(math.isfinite, pseudo_values)):
        return -math.inf, math.inf
    return limits(pseudo_values)


def choice_in_words(choice: dict[str, Any]) -> str:
    """A choice in words."""
    answers = f"the {choice['name']} answers"
    scores = _listed(choice["validation"])
    where = "on the validation part"
    if choice["folds"]:
        where = f"in {choice['folds']} folds"
    if choice.get("is_asked_for"):
        words = f"{answers}, as --model asks"
        if scores:
            words += f"; {where} {scores}"
    elif not scores and choice["name"] == "network":
        return f"{answers}, as nothing is chosen yet"
    elif not scores:
        return f"{answers}, as no validation part chooses"
    elif choice["name"] not in choice["validation"]:
        words = f"{answers}, which has no score {where} ({scores})"
    elif choice["margin"] is None:
        (score,) = choice["validation"].values()
        return f"{answers}, the only one with a score ({score:.3f})"
    elif choice["margin"] < 0:
        words = f"{answers}, as no score {where} is higher by more than chance explains ({scores})"
    else:
        words = f"{answers}, by a margin of {choice['margin']:.3f} {where} ({scores})"
    if "scores" in choice:
        words += f"; on these shapes {_listed(choice['scores'])}"
    return words


def _listed(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {score:.3f}" for name, score in scores.items())

"""A network and a forest on the same features: the better one answers, or both.

The choice is made on the validation part alone, and is kept with the parameters.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..graphs import Hierarchy
from ..models import UNet
from .data import Prepared
from .forest import Forest
from .loop import answers_of
from .options import Schedule
from .tasks import Task

#: Candidates, and the share that the forest has in the answers of each; of equal ones the first is
#: chosen, so that a network must earn its part.
SHARES = {"the forest": 1.0, "the mean of both": 0.5, "the network": 0.0}


class Best(nn.Module):
    """A U-Net and a random forest; answers are those of one of them, or their mean.

    Args:
        features: Width of the points' features, which both read.
        out_dim: Width of the answer.
        readout: "node" or "shape".
        trees: Of the forest.
        options: Arguments of :class:`graphattn.models.UNet`.
    """

    share: Tensor
    scores: Tensor

    def __init__(
        self,
        features: int,
        out_dim: int,
        *,
        readout: str = "node",
        trees: int = 100,
        **options: Any,
    ) -> None:
        super().__init__()
        self.out_dim = out_dim
        self.network = UNet(features, out_dim, readout=readout, **options)
        self.forest = Forest(features, out_dim, readout=readout, trees=trees)
        self.register_buffer("share", torch.zeros(()))
        self.register_buffer("scores", torch.full((len(SHARES),), torch.nan))

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Logits, logarithms of probabilities, or numbers in deviations: (N, out) or (B, out)."""
        share = float(self.share)
        if share == 0:
            output: Tensor = self.network(x, shape)
            return output
        trees: Tensor = self.forest(x, shape)
        if share == 1:
            return trees
        output = self.network(x, shape)
        if self.out_dim == 1:
            return (1 - share) * output + share * trees
        mean = (1 - share) * output.softmax(-1) + share * trees.softmax(-1)
        return mean.clamp(min=1e-9).log()

    def only_network(self) -> None:
        """Answer as the network, which is in training, and forget a choice."""
        self.share.fill_(0)
        self.scores.fill_(torch.nan)

    def choose(self, task: Task, val: Prepared, schedule: Schedule) -> None:
        """Answer from now on as the candidate with the best score on some shapes with labels.

        Of equal ones, and where there are no such shapes, the forest is chosen.
        """
        if len(val):
            labels = torch.cat(val.labels())
            for number, share in enumerate(SHARES.values()):
                self.share.fill_(share)
                answers = torch.cat(answers_of(self, task, val, schedule)[0])
                self.scores[number] = task.scores(task.predictions(answers), labels)[task.metric]
        best = int(self.scores.nan_to_num(-torch.inf, neginf=-torch.inf).argmax())
        self.share.fill_(list(SHARES.values())[best])

    def choice(self) -> dict[str, Any]:
        """The chosen candidate, the score of each on the validation part, and the margin.

        A candidate whose answers are not finite has no score.
        """
        shares = list(SHARES.values())
        name = list(SHARES)[shares.index(float(self.share))]
        scores = dict(zip(SHARES, self.scores.tolist(), strict=True))
        scores = {key: score for key, score in scores.items() if math.isfinite(score)}
        others = [score for key, score in scores.items() if key != name]
        margin = None
        if name in scores and others:
            margin = scores[name] - max(others)
        return {"name": name, "validation": scores, "margin": margin}


def said(choice: dict[str, Any]) -> str:
    """A choice in words."""
    if not choice["validation"]:
        return f"{choice['name']} answers, as no validation part chooses"
    if choice["margin"] is None:
        (score,) = choice["validation"].values()
        return f"{choice['name']} answers, the only one with a score ({score:.3f})"
    scores = ", ".join(f"{name} {score:.3f}" for name, score in choice["validation"].items())
    return (
        f"{choice['name']} answers, by a margin of {choice['margin']:.3f} on the validation part "
        f"({scores})"
    )

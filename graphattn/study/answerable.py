"""Checks that data can answer what a study asks of it, before anything is trained."""

import torch
from torch import Tensor

from ..arguments import shown
from ..errors import ShapeError
from .data import Data
from .metrics import VALUES

_CLASSES = 1 << 20


def check_data(data: Data, readout: str, token: int, floats: torch.dtype | None) -> None:
    """Refuse data of which no trial could answer.

    Args:
        data: What passed the checks of its own.
        readout: "mean", "token", "node" or "edge".
        token: Which node, of "token".
        floats: What features must be; None where the model is the user's, and may take others.
    Raises:
        ShapeError: If there is no node or no feature, a number is not finite, a sample asks
            nothing, or padding is asked or read out.
    """
    for name in ("inputs", "targets", "pos", "pairs"):
        value: Tensor | None = getattr(data, name)
        if value is None:
            continue
        if name == "targets" and data.kind == VALUES:
            value = value.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        _check_numbers(name, value)
    if 0 in data.inputs.shape:
        raise ShapeError(
            f"inputs must be of 1 node and 1 feature or more, got {shown(data.inputs)}"
        )
    if data.inputs.is_floating_point() and data.inputs.dtype != (floats or data.inputs.dtype):
        raise ShapeError(
            f"inputs must be float32, as the model's parameters are, got {shown(data.inputs)}; "
            ".float()"
        )
    if data.pos is not None and data.pos.dim() != 3:
        raise ShapeError(f"pos must be {(*data.inputs.shape[:2], 'd')}, got {shown(data.pos)}")
    if data.classes > _CLASSES:
        raise ShapeError(
            f"targets must be classes below {_CLASSES:,}, got {data.classes - 1:,}; number them "
            "anew"
        )
    _check_questions(data)
    if data.sizes is not None and readout == "token" and token >= int(data.sizes.min()):
        raise ShapeError(
            f"token {token} is padding in samples of {int(data.sizes.min())} nodes; give one that "
            "all have"
        )


def _check_numbers(name: str, value: Tensor) -> None:
    if value.device.type != "cpu" or value.requires_grad:
        raise ShapeError(
            f"{name} must be on the CPU and without a gradient, as trials share it; .detach().cpu()"
        )
    if value.is_floating_point() and not bool(value.isfinite().all()):
        bad = int((~value.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ShapeError(
            f"{name} must be finite, sample {bad} is not; leave such samples out, or fill them in"
        )


def _check_questions(data: Data) -> None:
    is_asked = data.asked
    if data.of_nodes and data.sizes is not None:
        padding = torch.arange(data.num_nodes) >= data.sizes.unsqueeze(-1)
        if bool((is_asked & padding).any()):
            bad = int((is_asked & padding).any(1).nonzero()[0])
            raise ShapeError(
                f"targets of padding must be -100, sample {bad} asks nodes beyond its "
                f"{int(data.sizes[bad])}, which have no logits"
            )
    has_question = is_asked.view(len(data), -1).any(1)
    if not bool(has_question.all()):
        bad = int((~has_question).nonzero()[0])
        raise ShapeError(
            f"targets must ask something of every sample, sample {bad} has -100 alone; leave it out"
        )

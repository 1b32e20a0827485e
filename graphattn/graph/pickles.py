"""Copies and pickles of graphs, which ``torch.load(weights_only=True)`` can read."""

import json
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import GraphError, LoaderError


class Immutable:
    """An object that is its own copy, and is pickled as a call of :func:`restored` on plain
    data.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        from .saving.write import to_plain  # it imports all graphs, which are all of this class

        tensors: list[Tensor] = []
        try:
            data = to_plain(self, tensors, keep_device=True)  # type: ignore[arg-type]
        except GraphError:  # too many intervals: a plain pickle, which weights_only refuses
            return super().__reduce_ex__(protocol)
        return restored, (json.dumps(data), tensors)


def restored(text: str, tensors: list[Tensor]) -> Any:
    """The graph of a pickle: the only function of graphattn that :func:`torch.load` may call on
    untrusted data.

    Raises:
        LoaderError: If the data is not a saved graph.
    """
    from .saving.read import from_plain  # it imports all graphs

    if (
        not isinstance(text, str)
        or not isinstance(tensors, list)
        or not all(isinstance(x, Tensor) for x in tensors)
    ):
        raise LoaderError(
            "a pickled graph: expected text and tensors, got other data. Try: save it again."
        )
    return from_plain(parsed(text, "pickle"), tensors, where="pickle")


torch.serialization.add_safe_globals([restored])  # torch.load trusts no function by default


def parsed(text: str | bytes, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        LoaderError: If the text is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # UnicodeDecodeError, JSONDecodeError, a number of 5000 digits
        if isinstance(error, RecursionError):
            reason = "nesting too deep"
        else:
            reason = str(error)[:200]
        raise LoaderError(
            f"{where}: expected JSON, got: {reason}. Try: load what graphattn saved, unchanged."
        ) from None

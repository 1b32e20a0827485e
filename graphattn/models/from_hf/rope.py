"""Rotary positions of ``transformers``, whose frequencies are other ones for longer texts."""

from collections.abc import Callable
from typing import Any

from ...errors import OptionError
from ...nn import LinearScaling, Llama3Scaling, Rotary, RotaryScaling


def read_rotary(given: dict[str, Any], head_dim: int) -> Rotary:
    """The rotary positions of a configuration's ``rope_parameters``.

    Raises:
        OptionError: If the frequencies change with the length of the text ("dynamic", "longrope"), or only some
            channels are turned, or the type is unknown.
    """
    kind = given["rope_type"]
    if kind not in SCALINGS or given.get("partial_rotary_factor", 1.0) != 1.0:
        raise OptionError(
            f"rope_parameters must have a rope_type of {', '.join(SCALINGS)}, and all channels turned; got {given}"
        )
    return Rotary(head_dim, base=given["rope_theta"], scaling=SCALINGS[kind](given))


def _llama3(given: dict[str, Any]) -> Llama3Scaling:
    return Llama3Scaling(
        given["factor"], given["original_max_position_embeddings"], given["low_freq_factor"], given["high_freq_factor"]
    )


SCALINGS: dict[str, Callable[[dict[str, Any]], RotaryScaling | None]] = {
    "default": lambda given: None,
    "linear": lambda given: LinearScaling(given["factor"]),
    "llama3": _llama3,
}

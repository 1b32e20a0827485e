"""Rotary positions of ``transformers``, whose frequencies are other ones for longer texts."""

import math
from collections.abc import Callable
from typing import Any

from ...errors import OptionError
from ...nn import LinearScaling, Llama3Scaling, Rotary, RotaryScaling, YarnScaling


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
    turns = (given["low_freq_factor"], given["high_freq_factor"])
    return Llama3Scaling(given["factor"], given["original_max_position_embeddings"], *turns)


def _yarn(given: dict[str, Any]) -> YarnScaling:
    factor, amplitude = given["factor"], given.get("attention_factor")
    if factor is None:
        raise OptionError(f"rope_parameters of type yarn must have a factor; got {given}")
    over, under = given.get("mscale"), given.get("mscale_all_dim")
    if amplitude is None and over and under:
        growth = 0.1 * math.log(max(factor, 1.0))
        amplitude = (growth * over + 1) / (growth * under + 1)
    turns = (given.get("beta_slow") or 1.0, given.get("beta_fast") or 32.0)
    return YarnScaling(
        factor, given["original_max_position_embeddings"], *turns, given.get("truncate", True), amplitude
    )


SCALINGS: dict[str, Callable[[dict[str, Any]], RotaryScaling | None]] = {
    "default": lambda given: None,
    "linear": lambda given: LinearScaling(given["factor"]),
    "llama3": _llama3,
    "yarn": _yarn,
}

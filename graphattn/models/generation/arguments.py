"""What callers hand to generation, or the error that says what to pass instead."""

from numbers import Real
from operator import index
from typing import Any

import torch
from torch import Tensor

from ...arguments import refuse_class, width
from ...errors import OptionError, ShapeError

STRATEGIES = {
    "greedy": (),
    "beam": ("num_beams", "length_penalty"),
    "sample": ("temperature", "top_k", "top_p", "generator"),
}
_RANGES = (("length_penalty", -100, 100), ("temperature", 1e-30, 1e30), ("top_p", 1e-30, 1.0))


def check_model(model: Any) -> None:
    """Refuse what does not write."""
    refuse_class(model, "model")
    missing = [name for name in ("graph", "begin") if not hasattr(model, name)]
    if missing:
        way = "it reads a source: pass model.reading(source)" if hasattr(model, "reading") else "a GPT is one"
        raise OptionError(
            f"model must be one that writes: model(tokens, graphs, caches=...), model.graph and model.begin(batch, "
            f"length); a {type(model).__name__} has no {' and no '.join(missing)}; {way}"
        )


def check_options(strategy: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a strategy that were given, each in its range."""
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise OptionError(f"strategy must be one of {', '.join(STRATEGIES)}; got {strategy!r}")
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in STRATEGIES[strategy]:
            owner = next(kind for kind, names in STRATEGIES.items() if name in names)
            raise OptionError(f'{name} is an option of strategy="{owner}"; the strategy is {strategy!r}')
    if strategy == "beam" and "num_beams" not in given:
        raise OptionError('strategy="beam" needs num_beams, the sequences to keep')
    for name in ("num_beams", "top_k"):
        if name in given:
            given[name] = width(given[name], name)
    for name, least, most in _RANGES:
        value: Any = given.get(name, most)
        if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
            hint = '; as it nears 0 it becomes strategy="greedy"' * (name == "temperature")
            raise OptionError(f"{name} must be a number in [{least:g}, {most:g}], got {value!r}{hint}")
    maker = given.get("generator")
    if not isinstance(maker, torch.Generator | None):
        raise OptionError(f"generator must be a torch.Generator, as torch.Generator().manual_seed(0) is; got {maker!r}")
    return given


def token_number(eos: Any) -> int | None:
    """The number of a token, if there is one."""
    try:
        number = -1 if isinstance(eos, bool) else 0 if eos is None else index(eos)
    except TypeError:
        number = -1
    if number < 0:
        raise OptionError(f"eos must be the number of a token, >= 0, got {eos!r}")
    return None if eos is None else number


def prompt_of(model: Any, tokens: Any, number: int) -> Tensor:
    """The prompt as (B, P)."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dim() < 1 or not tokens.shape[-1]:
        got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ShapeError(f"tokens must be integers (..., P) with P >= 1, or a list of such (P_i,); got {got}")
    most, length = getattr(model, "max_len", None), tokens.shape[-1] + number
    if most is not None and length > most:
        raise ShapeError(
            f"the model has positions for {most} tokens; a prompt of {tokens.shape[-1]} and max_new_tokens = {number} "
            f"are {length}"
        )
    return tokens.reshape(-1, tokens.shape[-1])

"""Checks of the arguments of generation."""

from typing import Any

from torch import Tensor

from ...arguments import one_of, real, width
from ...errors import OptionError, ShapeError

STRATEGIES = {
    "greedy": (),
    "beam": ("num_beams", "length_penalty"),
    "sample": ("temperature", "top_k", "top_p", "generator"),
}
_RANGES = {"length_penalty": (-100, 100), "temperature": (1e-30, 1e30), "top_p": (1e-30, 1.0)}


def options_of(strategy: str, options: dict[str, Any]) -> dict[str, Any]:
    """The given options of a strategy, each checked for its range."""
    one_of(strategy, "strategy", STRATEGIES)
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in STRATEGIES[strategy]:
            owner = next(kind for kind, names in STRATEGIES.items() if name in names)
            raise OptionError(f'{name} requires strategy="{owner}", got {strategy!r}')
    if strategy == "beam" and "num_beams" not in options:
        raise OptionError('strategy="beam" needs num_beams, the sequences to keep')
    for name in options.keys() & {"num_beams", "top_k"}:
        options[name] = width(options[name], name)
    for name in options.keys() & _RANGES.keys():
        least, most = _RANGES[name]
        if name == "temperature":
            hint = ' (near 0 it is strategy="greedy")'
        else:
            hint = ""
        options[name] = real(options[name], name)
        if not least <= options[name] <= most:
            raise OptionError(
                f"{name} must be a number in [{least:g}, {most:g}]{hint}, got {options[name]}"
            )
    return options


def prompts_of(model: Any, tokens: Any, number: int, num_examples: int) -> Tensor | list[Tensor]:
    """The prompts as (B, P), or those of a list, each (P_i,).

    Raises:
        ShapeError: If they are not as many as the examples of the graph, which may be one for all.
    """
    if isinstance(tokens, list | tuple):
        single = [_prompt_of(model, prompt, number) for prompt in tokens]
        if any(len(prompt) != 1 for prompt in single):
            raise ShapeError(
                "a list of prompts must hold sequences (P_i,); pass several of one length as (B, P)"
            )
        _check_count(len(single), num_examples)
        return [prompt[0] for prompt in single]
    prompts = _prompt_of(model, tokens, number)
    _check_count(tokens.shape[:-1][-1:].numel(), num_examples)
    return prompts


def _check_count(prompts: int, num_examples: int) -> None:
    if num_examples not in (1, prompts):
        raise ShapeError(
            f"a graph of {num_examples} examples needs as many prompts, tokens "
            f"(..., {num_examples}, P) or a list, got {prompts}"
        )


def _prompt_of(model: Any, tokens: Any, number: int) -> Tensor:
    """The prompt as (B, P)."""
    most = getattr(model, "max_len", None)
    length = tokens.shape[-1] + number
    if most is not None and length > most:
        raise ShapeError(
            f"the model has positions for {most} tokens, and a prompt of {tokens.shape[-1]} with "
            f"max_new_tokens = {number} needs {length}"
        )
    return tokens.reshape(-1, tokens.shape[-1])

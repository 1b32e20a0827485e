"""The door to generation: a prompt, a graph, a way to choose."""

from typing import Any

import torch
from torch import Tensor

from ...errors import OptionError, ShapeError
from ...nn.arguments import width
from ..stacks import Graphs
from .beam import beam_search
from .choose import Sample, likeliest, one_by_one, wide
from .continuation import Continuation

STRATEGIES = {
    "greedy": (),
    "beam": ("num_beams",),
    "sample": ("temperature", "top_k", "top_p", "generator"),
}


@torch.no_grad()
def generate(
    model: Any,
    tokens: Tensor,
    graph: Graphs | None = None,
    *,
    max_new_tokens: int,
    strategy: str = "greedy",
    num_beams: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """A prompt and the tokens that a model writes after it, along any graph that does not hear of the future.

    Keys and values are kept, so each token is computed once; the result is that of computing everything again at each
    step. The model is used as it is: call ``model.eval()`` first if it has dropout.

    Args:
        model: A :class:`GPT`, or a module of its kind: ``model(tokens, graphs, caches=...)`` gives logits,
            ``model.num_layers`` says how many graphs and caches it takes, ``model.graph`` which graph by default.
        tokens: The prompt, integers (..., P), P >= 1. It is there at once: its tokens may read each other in any
            direction, as in a prefix language model.
        graph: Of the whole sequence, P + ``max_new_tokens`` nodes or more: a graph, a pattern, graphs of heads, one for
            all layers or a schedule. The model's own by default.
        max_new_tokens: Tokens to write.
        strategy: "greedy": the likeliest token each time. "beam": beam search by the sum of log-probabilities, without
            a factor for length. "sample": drawn at random.
        num_beams: Sequences that beam search keeps; 1 is greedy.
        temperature: Divides the logits before one is drawn; 1 by default.
        top_k: Draw from the likeliest ``top_k``.
        top_p: Draw from the fewest of the likeliest that have this probability together.
        eos: The token that ends a sequence; what follows it, while others go on, is the same token.
        generator: Of random numbers.

    Returns:
        Integers (..., P + n), n <= ``max_new_tokens``.

    Raises:
        GraphError: If the graph is too small, or a token would hear of one that is not written yet; the message names
            the shortest way.
        OptionError: If an option is out of its range, or of another strategy.
        ShapeError: If ``tokens`` are no prompt, or would become more than the model has positions for.

    Source: Beam search as Sutskever et al. 2014, section 3.2; top-k as Fan et al. 2018, top-p as
    Holtzman et al. 2020. Beam search is that of ``transformers`` with ``early_stopping="never", length_penalty=0.0``.

    Example:
        >>> import graphattn as ga
        >>> model = ga.models.gpt2(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> prompt = torch.randint(11, (3, 5))
        >>> generate(model, prompt, ga.graphs.sliding_window(..., 4), max_new_tokens=6).shape
        torch.Size([3, 11])
        >>> generate(model, prompt, ga.graphs.full(...), max_new_tokens=6)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphattn.errors.GraphError: a token would hear ...
    """
    given: dict[str, Any] = {
        "num_beams": num_beams,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "generator": generator,
    }
    _check(strategy, given)
    number = width("max_new_tokens", max_new_tokens)
    if eos is not None and (isinstance(eos, bool) or not isinstance(eos, int) or eos < 0):
        raise OptionError(f"eos must be the number of a token, >= 0, got {eos!r}")
    prompt = _prompt(model, tokens, number)
    length = prompt.shape[1] + number
    write = Continuation(model, model.graph if graph is None else graph, prompt.shape[1], length)
    if strategy == "beam":
        found = beam_search(write, prompt, number, eos, width("num_beams", num_beams))
    else:
        drawn: dict[str, Any] = {name: given[name] for name in STRATEGIES[strategy] if given[name] is not None}
        found = one_by_one(write, prompt, number, eos, Sample(**drawn) if strategy == "sample" else likeliest)
    return found.unflatten(0, tokens.shape[:-1]) if tokens.dim() > 2 else found.reshape(*tokens.shape[:-1], -1)


@torch.no_grad()
def log_probability(model: Any, tokens: Tensor, start: int, graph: Graphs | None = None) -> Tensor:
    """Log-probability (...) that a model gives to tokens (..., N) from number ``start`` on, after those before.

    Args:
        model: As of :func:`generate`.
        tokens: Prompt and answer.
        start: Tokens of the prompt, >= 1.
        graph: Of all tokens; the model's own by default.
    """
    if not 1 <= start <= tokens.shape[-1]:
        raise OptionError(f"start must be between 1 and the number of tokens, {tokens.shape[-1]}; got {start}")
    share = wide(model(tokens, model.graph if graph is None else graph)[..., start - 1 : -1, :]).log_softmax(-1)
    return share.gather(-1, tokens[..., start:, None].long()).sum((-1, -2))


def _check(strategy: Any, given: dict[str, Any]) -> None:
    if strategy not in STRATEGIES:
        raise OptionError(f"strategy must be one of {', '.join(STRATEGIES)}; got {strategy!r}")
    for name, value in given.items():
        if value is not None and name not in STRATEGIES[strategy]:
            owner = next(kind for kind, names in STRATEGIES.items() if name in names)
            raise OptionError(f'{name} is an option of strategy="{owner}"; the strategy is {strategy!r}')
    if strategy == "beam" and given["num_beams"] is None:
        raise OptionError('strategy="beam" needs num_beams, the sequences to keep')
    if given["top_k"] is not None:
        width("top_k", given["top_k"])
    for name, most in (("temperature", float("inf")), ("top_p", 1.0)):
        value = given[name]
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most
        ):
            raise OptionError(f"{name} must be a number in (0, {most}], got {value!r}")


def _prompt(model: Any, tokens: Any, number: int) -> Tensor:
    """The prompt as (B, P)."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dim() < 1 or not tokens.shape[-1]:
        got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ShapeError(f"tokens must be integers (..., P) with P >= 1, got {got}")
    most, length = getattr(model, "max_len", None), tokens.shape[-1] + number
    if most is not None and length > most:
        raise ShapeError(
            f"the model has positions for {most} tokens; a prompt of {tokens.shape[-1]} and max_new_tokens = {number} "
            f"are {length}"
        )
    return tokens.reshape(-1, tokens.shape[-1])

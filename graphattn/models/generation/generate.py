"""Generation: a prompt, a graph, a strategy."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...arguments import whole, width
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layers
from .arguments import options_of, prompts_of
from .continuation import Continuation, graphs_of_sequences
from .strategies import Sampling, beam_search, likeliest, one_by_one


@names_checked
@torch.no_grad()
def generate(
    model: Any,
    tokens: Tensor | list[Tensor],
    graph: Layers | None = None,
    *,
    max_new_tokens: int,
    strategy: str = "greedy",
    num_beams: int | None = None,
    length_penalty: float | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    """A prompt and the tokens that a model generates after it, along any graph without leaks.

    Keys and values are cached, so that each token is computed once; the result equals that of
    recomputing everything at each step. The model is used as it is: call ``model.eval()`` first if
    it has dropout. Under ``torch.compile`` each length has its own graph, and so its own program,
    until torch's ``recompile_limit`` falls back to plain code.

    Args:
        model: A :class:`GPT`; ``model.reading(source)`` of a :class:`T5`, whose encoder runs once;
            or any module that meets the interface of
            :class:`~graphattn.models.generation.Continuation`.
        tokens: The prompt, integers (..., P), P >= 1, not padded; for a model that reads a source
            its start token, or more. Its tokens may read each other in any direction, as in a
            prefix language model. Prompts of several lengths are a list of (P_i,): those of one
            length run together, on the graph of their length.
        graph: The graph of the whole sequence, of at least P + ``max_new_tokens`` nodes: a graph, a
            pattern, graphs per head, one for all layers or a list; a :class:`PerExample` has one
            for each prompt, whose count is the last leading dimension of ``tokens``, or the length
            of their list. The model's own by default.
        max_new_tokens: Most tokens to generate.
        strategy: "greedy": the likeliest token each time. "beam": beam search by the sum of
            log-probabilities. "sample": random tokens.
        num_beams: Sequences that beam search keeps; 1 is greedy.
        length_penalty: Beam search divides the sum by the number of new tokens to this power: 0.0,
            no division, by default; values above 0 favour longer sequences.
        temperature: Divides the logits before one is drawn; 1 by default.
        top_k: Draw from the likeliest ``top_k``.
        top_p: Draw from the fewest of the likeliest that have this probability together.
        eos: The token that ends a sequence, which is then padded with it while others continue.
        generator: Generator of random numbers.

    Returns:
        Integers (..., P + n), n <= ``max_new_tokens``; for a list of prompts a list of (P_i +
        n_i,), each to its end.

    Raises:
        GraphError: If the graph is too small, or a token would depend on one that is not written
            yet; the message names the shortest way.
        OptionError: If the model cannot generate, or an option is out of range, or of another
            strategy.
        ShapeError: If ``tokens`` are not a prompt, or the sequence would exceed the model's
            positions.
        GraphAttnError: If the largest logit of a sequence is NaN or infinite.

    Source: Beam search as Sutskever et al. 2014, section 3.2; top-k as Fan et al. 2018, top-p as
    Holtzman et al. 2020. Beam search is that of ``transformers`` with ``early_stopping="never"``
    and the same ``length_penalty``.

    Example:
        >>> import graphattn as ga
        >>> model = ga.models.GPT.gpt2(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> prompt = torch.randint(11, (3, 5))
        >>> generate(model, prompt, ga.graphs.sliding_window(..., 4, causal=True), max_new_tokens=6).shape
        torch.Size([3, 11])
        >>> [text.shape for text in generate(model, [prompt[0], prompt[1, :2]], max_new_tokens=6)]
        [torch.Size([11]), torch.Size([8])]
        >>> t5 = ga.models.T5(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> start = torch.zeros(3, 1, dtype=torch.int64)
        >>> generate(t5.reading(prompt), start, max_new_tokens=6, strategy="beam", num_beams=2).shape
        torch.Size([3, 7])
        >>> generate(model, prompt, ga.graphs.full(...), max_new_tokens=6)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphattn.errors.GraphError: a token would depend ...
    """
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "generator": generator}
    options = options_of(
        strategy, {"num_beams": num_beams, "length_penalty": length_penalty, **drawn}
    )
    number = width(max_new_tokens, "max_new_tokens")
    if eos is None:
        end = None
    else:
        end = whole(eos, "eos", 0)

    graphs = graphs_of_sequences(model.graph, graph)
    prompts = prompts_of(model, tokens, number, len(graphs))

    def written(prompt: Tensor, rows: list[int]) -> Tensor:
        """The sequences ``rows``, with prompts (B', P) of one length, along the same graphs."""
        layers = graphs[0]
        if rows:
            layers = graphs[rows[0] % len(graphs)]
        length = prompt.shape[1]
        write = Continuation(model, layers, length, length + number, len(prompts))
        if len(rows) < len(prompts):
            write.reorder(torch.tensor(rows, device=prompt.device))
        if strategy == "beam":
            return beam_search(write, prompt, number, end, **options)
        if strategy == "sample":
            return one_by_one(write, prompt, number, end, Sampling(**options))
        return one_by_one(write, prompt, number, end, likeliest)

    if isinstance(prompts, Tensor) and len(graphs) == 1:
        text = written(prompts, list(range(len(prompts))))
        return _as_passed(text, tokens)
    together: dict[Any, list[int]] = {}
    for row, prompt in enumerate(prompts):
        layers = graphs[row % len(graphs)]
        together.setdefault((len(prompt), *map(id, layers)), []).append(row)
    texts: dict[int, Tensor] = {}
    for rows in together.values():
        prompt = torch.stack([prompts[row] for row in rows])
        texts.update(zip(rows, written(prompt, rows), strict=True))
    in_order = [texts[row] for row in range(len(prompts))]
    if isinstance(prompts, Tensor):
        text = pad_sequence(in_order, batch_first=True, padding_value=end or 0)
        return _as_passed(text, tokens)
    return [
        _to_its_end(text, len(prompt), end) for text, prompt in zip(in_order, prompts, strict=True)
    ]


def _as_passed(text: Tensor, tokens: Any) -> Tensor:
    """Sequences (B, P + n) as (..., P + n) for prompts (..., P)."""
    return text.reshape(*tokens.shape[:-1], text.shape[-1])


def _to_its_end(text: Tensor, prompt: int, eos: int | None) -> Tensor:
    """A sequence up to its first ``eos`` after the prompt."""
    if eos is None:
        ends = []
    else:
        ends = (text[prompt:] == eos).nonzero().flatten().tolist()
    if ends:
        return text[: prompt + ends[0] + 1]
    return text

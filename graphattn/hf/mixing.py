"""Modules that mix tokens without attention: found by a probe, and restarted at each sequence."""

import re
from collections import Counter, defaultdict
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ..convert import to_scipy
from ..errors import OptionError
from ..graph import AttentionGraph
from ..graph.modes import keep
from .modules import mixers, own_code
from .ticket import Ticket
from .tokens.frame import Frame, SequencePiece, all_tokens

_PROBED = 9  # tokens of the probe
_OF_A_ROW = re.compile(r"seq_?len|max_length|seq_idx")  # arguments that split it
_FOUND: dict[frozenset[type], frozenset[type]] = {}  # mixing classes, by all classes of a model


def find_mixers(patch: Any) -> dict[str, nn.Module]:
    """Modules that mix tokens without attention, by name.

    With attention cut off, so that each token reads itself, a module mixes tokens where its output
    at one token has a gradient with respect to its input at another. A model that does not run on
    tokens alone is judged by the form of its modules, and its rows of several sequences are
    refused.

    Args:
        patch: The patch of the model.
    """
    classes = frozenset(map(type, patch.model.modules()))
    if classes not in _FOUND:
        try:
            _FOUND[classes] = _probe(patch)
        except Exception:  # of the model
            return mixers(patch.model)
    return {
        name: module
        for name, module in patch.model.named_modules()
        if type(module) in _FOUND[classes]
    }


def listed(modules: dict[str, nn.Module]) -> str:
    """Classes of modules and their numbers."""
    counts = Counter(type(module).__name__ for module in modules.values())
    return ", ".join(f"{name} x {number}" for name, number in counts.items())


def _probe(patch: Any) -> frozenset[type]:
    model: nn.Module = patch.model
    found: dict[str, nn.Module] = {}
    embedded: list[Tensor] = []

    def need_gradient(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        embedded[:] = [output.detach().requires_grad_()]
        return embedded[0]

    handles = [model.get_input_embeddings().register_forward_hook(need_gradient)]  # type: ignore[operator]
    for name, module in model.named_modules():
        hook = partial(_record, found, embedded, name)
        handles.append(module.register_forward_pre_hook(_apart, with_kwargs=True))
        handles.append(module.register_forward_hook(hook, with_kwargs=True))
    modes = [(module, module.training) for module in model.modules()]
    zeros = [x for x in model.parameters() if not x.is_meta and not x.any()]
    values = [x.data for x in zeros]
    before = dict(vars(patch.running))
    patch.running.__init__()
    patch.running.is_cut = True
    try:
        for x in zeros:  # what they multiply would depend on nothing
            x.data = torch.full_like(x, 0.02)
        model.eval()
        with torch.inference_mode(False), torch.enable_grad():
            tokens = torch.arange(1, _PROBED + 1, device=next(model.parameters()).device)[None]
            inputs = {"input_ids": tokens}
            if getattr(model.config, "is_encoder_decoder", False):
                inputs["decoder_input_ids"] = tokens
            model(**inputs, use_cache=False)
    finally:
        vars(patch.running).clear()
        vars(patch.running).update(before)
        for handle in handles:
            handle.remove()
        for module, mode in modes:
            module.training = mode
        for x, value in zip(zeros, values, strict=True):
            x.data = value
    return frozenset(type(found[name]) for name in _whole(found, patch))


def _whole(found: dict[str, nn.Module], patch: Any) -> list[str]:
    """The outermost of nested modules that is neither a layer nor around attention; else the
    innermost.
    """
    model: nn.Module = patch.model
    classes = own_code(model)
    own = [name for name, x in model.named_modules() if type(x).__name__ in classes]
    around = [place.name for place in patch.slots]
    layers = {type(x) for part in model.modules() if isinstance(part, nn.ModuleList) for x in part}
    names = [
        name
        for name in found
        if name and not any(_is_in(x, name) or _is_in(name, x) or x == name for x in own)
    ]
    whole = [
        name
        for name in names
        if type(found[name]) not in layers and not any(x == name or _is_in(x, name) for x in around)
    ]
    outermost = [name for name in whole if not any(_is_in(name, other) for other in whole)]
    rest = [name for name in names if not any(_is_in(x, name) for x in names)]
    return outermost + [x for x in rest if not any(_is_in(x, name) for name in (x, *outermost))]


def _is_in(name: str, other: str) -> bool:
    """True if a module is within another."""
    return name.startswith(f"{other}.")


def _apart(module: nn.Module, args: Any, options: Any) -> Any:
    """Hook before a call: inputs of which none is computed from another."""
    return tree_map(lambda x: x.view_as(x) if _is_of_tokens(x) else x, (args, options))


def _record(
    found: dict[str, nn.Module],
    embedded: list[Tensor],
    name: str,
    module: nn.Module,
    args: Any,
    options: Any,
    output: Any,
) -> None:
    """Hook after a call of a module: keep it if it mixes tokens, or their embeddings."""
    inputs = [x for x in tree_leaves((args, options)) if _is_of_tokens(x) and x.requires_grad]
    inputs = inputs or embedded
    outputs = [x for x in tree_leaves(output) if _is_of_tokens(x) and x.requires_grad]
    if not inputs or not outputs or name in found:
        return
    at = _PROBED // 2
    one = sum((x[:, at] * torch.linspace(1, 2, x.shape[-1]).to(x)).sum() for x in outputs)
    for gradient in torch.autograd.grad(one, inputs, retain_graph=True, allow_unused=True):
        if gradient is None:
            continue
        moved = (gradient != 0).flatten(2).any(2).any(0)
        moved[at] = False
        if moved.any():
            found[name] = module


def _is_of_tokens(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 2 and x.shape[1] == _PROBED


def without_mixing(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, None]:
    """Attention that is cut off (B, T, H, D_v): each token depends on itself alone."""
    parts = [query.mean(-1, keepdim=True)]
    if key.shape[2] == query.shape[2]:
        groups = query.shape[1] // key.shape[1]
        parts.append(key.mean(-1, keepdim=True).repeat_interleave(groups, 1))
        parts.append(value.repeat_interleave(query.shape[1] // value.shape[1], 1))
    parts.append(query.new_zeros(*query.shape[:3], value.shape[-1]))
    return sum(parts).transpose(1, 2).contiguous(), None  # type: ignore[union-attr]


def restart(patch: Any, method: Any, *args: Any, **options: Any) -> Any:
    """A call of a module that mixes tokens, for each sequence of a row by itself.

    Sequences of one length are the rows of one call.
    """
    here = patch.running
    call, tokens = here.call, None
    if here.tokens:
        tokens = here.tokens[-1][1]
    elif here.again is not None:
        call, tokens = here.again
    if tokens is None or tokens.is_trivial or not patch.splits_rows:
        return method(*args, **options)
    first = next(x for x in (*args, *options.values()) if isinstance(x, Tensor) and x.dim() > 1)
    B, T = first.shape[:2]
    virtual = 0
    tickets: list[Ticket] = []
    if call is not None:
        virtual = max(call.virtual.values(), default=0)
        tickets = [x for x in call.tickets if not x.is_given and x.request["q_length"] == T]
    if tickets:
        frame = tickets[0].frame(crosses=False)
    else:
        frame = all_tokens(T, T, crosses=False)
    split = tokens.split(frame, B, virtual)
    if split is frame:
        return method(*args, **options)
    module = method.__self__
    is_around = any("_graphattn" in part.__dict__ for part in module.modules())
    is_proven = any(type(module) in classes for classes in _FOUND.values())
    if virtual or frame.past or is_around or not is_proven:
        raise OptionError(
            f"{type(module).__name__} may carry its state from token to token, and cannot restart "
            "in a row after tokens in a cache or virtual ones, around attention, or in a model "
            "that does not run on tokens alone; give each sequence a row of its own"
        )
    here.has_restarted = True
    # sequences are rows of their own, without padding
    options = {name: x for name, x in options.items() if not _OF_A_ROW.search(name)}
    if "attention_mask" in options:
        options["attention_mask"] = None
    groups = _of_one_length(split, first.device)
    results = []
    for row, place in groups:
        cut = partial(_cut, B=B, T=T, row=row, place=place)
        results.append(method(*tree_map(cut, args), **tree_map(cut, options)))
    return tree_map(partial(_joined, groups=groups, B=B, T=T), *results)


def leave_mixer(module: nn.Module) -> None:
    """Give a module its method back that :func:`restart` calls."""
    method = module.__dict__.get("forward")
    if getattr(method, "func", None) is not restart:
        return
    before = cast(Any, method).args[1]
    del module.forward
    if module.forward != before:  # a library around the model had replaced it
        module.forward = before


def _of_one_length(frame: Frame, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """The rows (n, 1) and positions (n, length) of the sequences of each length."""

    def make() -> list[tuple[Tensor, Tensor]]:
        pieces: dict[int, list[SequencePiece]] = defaultdict(list)
        for piece in frame.pieces:
            if piece.targets.size:
                pieces[piece.targets.size].append(piece)
        return [
            (
                torch.tensor([[piece.row] for piece in alike], device=device),
                torch.tensor([tuple(piece.targets.places) for piece in alike], device=device),
            )
            for alike in pieces.values()
        ]

    groups: list[tuple[Tensor, Tensor]] = keep(frame.memo, ("lengths", device), make)
    return groups


def _cut(x: Any, B: int, T: int, row: Tensor, place: Tensor) -> Any:
    """The rows of sequences of an argument; no cache, whose state is of one sequence."""
    if hasattr(x, "get_seq_length"):
        return None
    if not isinstance(x, Tensor) or x.dim() < 2 or x.shape[1] != T:
        return x
    return x.expand(B, *x.shape[1:])[row, place]


def _joined(*parts: Any, groups: list[tuple[Tensor, Tensor]], B: int, T: int) -> Any:
    """An output of all tokens, 0 at those of no sequence; ``None`` for a state."""
    output = None
    for x, (row, place) in zip(parts, groups, strict=True):
        if not isinstance(x, Tensor) or x.shape[:2] != place.shape:
            return None
        if output is None:
            output = x.new_zeros(B, T, *x.shape[2:])
        output = output.index_put((row, place), x)
    return output


def first_apart(graph: Any) -> int | None:
    """The first token to which no path of a graph leads from the one before it, which modules that
    mix tokens do not keep; ``None`` without one.
    """
    if not graph._is_fixed:
        return None
    one: AttentionGraph = graph.union()
    token: int | None = keep(one._memo, "first_apart", lambda: _first_apart(one))
    return token


def _first_apart(graph: AttentionGraph) -> int | None:
    from scipy.sparse.csgraph import breadth_first_order

    cached = graph.num_sources - graph.num_targets
    if cached < 0:
        return None
    runs = graph.edges.rows(torch.arange(graph.num_targets))
    token = runs.row + cached
    reads = torch.zeros(graph.num_sources, dtype=torch.bool)
    reads[token[(runs.lo < token) & (token <= runs.hi)]] = True
    reads[:1] = True  # nothing is before it
    for place in (~reads[cached:]).nonzero().flatten().add(cached).tolist():
        if cached or graph.is_causal:
            return int(place)
        reached = breadth_first_order(to_scipy(graph).T, place - 1, return_predecessors=False)
        if place not in reached:
            return int(place)
    return None

"""Linear attention: without softmax, (Q K^T) V = Q (K^T V), and the sources are one matrix."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import one_of, width
from ..graph import AttentionGraph, PerExample
from ..graph.modes import not_followed, without_autocast
from ..operands import Inputs, Outputs
from ..plans.cache import cached
from ..plans.whole import all_runs
from .normalizers import by_sum, none
from .scores import Score


def _elu(x: Tensor) -> Tensor:
    return F.elu(x) + 1


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _identity(x: Tensor) -> Tensor:
    return x


class FeatureMap(NamedTuple):
    """A map by name. Module-level functions, since a layer is pickled with its own."""

    function: Callable[[Tensor], Tensor]
    dense: Callable[[Tensor], Tensor]  # the dense twin
    smooth: bool = False  # and positive


FEATURE_MAPS: dict[str, FeatureMap] = {
    "elu": FeatureMap(_elu, lambda x: torch.where(x > 0, x + 1, x.clamp(max=0).exp()), True),
    "relu": FeatureMap(F.relu, lambda x: x.clamp(min=0)),
    "softmax": FeatureMap(
        _softmax, lambda x: (x - torch.logsumexp(x, -1, keepdim=True)).exp(), True
    ),
    "identity": FeatureMap(_identity, lambda x: x),
}
_CHUNK = 64  # targets per chunk, whose last sources are a dense product


class FeatureScore(Score):
    r"""``<phi(q), phi(k)>``, the score of linear attention; with ``normalize="sum"`` or ``"none"``
    its cost is O(N).

    A :class:`graphattn.nn.GraphAttention` whose score is any dot product, with "sum" or "none",
    computes targets that read all sources, or all up to a last one (full, causal, prefix, cross),
    from running sums of ``phi(k) v^T``, exactly and without weights. On other graphs, with biases,
    dropout or requested weights, or with ``backend="message_passing"``, it runs edge by edge. A NaN
    in a later source may reach the targets of its chunk; edge by edge it does not.

    Args:
        feature_map: phi, on the last dimension: "elu" (elu + 1, Katharopoulos), "relu", "softmax"
            (over the features), "identity"; or a module or function such as
            :class:`PositiveFeatures`.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", equations 4 to 9. *What differs:* a
    target whose scores sum to 0 gets 0, not 0 / epsilon.

    Example:
        >>> import graphattn as ga
        >>> layer = ga.nn.GraphAttention(8, 2, score=FeatureScore("elu"), normalize="sum")
        >>> layer(torch.randn(9_000, 8), ga.graphs.causal(9_000)).shape  # 40 million edges, none of them made
        torch.Size([9000, 8])
    """

    def __init__(self, feature_map: str | Callable[[Tensor], Tensor] = "elu") -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.feature_map: Any = feature_map
        if isinstance(feature_map, str):
            name = one_of(feature_map, "feature_map", FEATURE_MAPS)
            self.feature_map = FEATURE_MAPS[name].function
        self.head_dim = getattr(self.feature_map, "head_dim", None)  # that of PositiveFeatures

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        query, key = self.as_dot(query, key)
        return (query * key).sum(-1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self.feature_map(query), self.feature_map(key)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        if self._named:
            phi = self._named.dense
        else:
            phi = getattr(self.feature_map, "dense", self.feature_map)
        return torch.einsum("...thd,...shd->...hts", phi(query), phi(key))

    @property
    def _named(self) -> FeatureMap | None:
        return next(
            (entry for entry in FEATURE_MAPS.values() if entry.function is self.feature_map), None
        )

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        entry = self._named
        if entry is None:
            return False
        return entry.smooth

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.smooth


class PositiveFeatures(nn.Module):
    r"""Random features whose dot product has the mean ``exp(<q, k> / sqrt(D))``: linear attention
    close to softmax.

    .. math:: \phi(x)_i = m^{-1/2} \exp(\langle \omega_i, y \rangle - |y|^2 / 2), \qquad y = D^{-1/4} x

    Args:
        head_dim: D.
        num_features: m; the error falls as m ** -0.5.
        seed: Seed of omega, rows of random orthogonal matrices with the lengths of Gaussian
            vectors.

    Source: Choromanski et al. 2021 (Performer), lemma 1 and section 2.4. *What differs:* no maximum
    is subtracted inside the exponential, since a maximum over all sources would make targets depend
    on later ones, and nothing is added to it (1e-6 in their code).
    """

    projection: Tensor

    def __init__(self, head_dim: int, num_features: int, seed: int = 0) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.head_dim = head_dim = width(head_dim, "head_dim")
        num_features = width(num_features, "num_features")
        generator = torch.Generator().manual_seed(seed)
        rows = []
        left = num_features
        while left > 0:
            turn, upper = torch.linalg.qr(torch.randn(head_dim, head_dim, generator=generator))
            # signs make the rotation uniform (Mezzadri 2007)
            rows.append((turn * upper.diagonal().sign())[:left])
            left -= head_dim
        lengths = torch.randn(num_features, head_dim, generator=generator).norm(
            dim=-1, keepdim=True
        )
        self.register_buffer("projection", torch.cat(rows) * lengths)  # (m, D)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., m)."""
        x = x * x.shape[-1] ** -0.25
        with without_autocast(x.device.type):  # an exponential magnifies what rounding changes
            logarithm = x @ self.projection.to(x.dtype).t() - x.square().sum(-1, keepdim=True) / 2
        return torch.exp(logarithm) * self.projection.shape[0] ** -0.5

    def dense(self, x: Tensor) -> Tensor:
        """The dense twin: ``exp(w_i . y - |y|^2 / 2) / sqrt(m)`` with ``y = x / D^(1/4)``."""
        y = x / x.shape[-1] ** 0.25
        half = 0.5 * (y * y).sum(-1, keepdim=True)
        return (torch.einsum("...d,md->...m", y, self.projection) - half).exp() / math.sqrt(
            self.projection.shape[0]
        )


class Chunk(NamedTuple):
    """Targets that read every source of the chunks before, and those of this chunk before their own
    end.
    """

    num_targets: int
    num_sources: int
    alike: bool  # True if they read all of this chunk's sources


def chunks_of(graph: AttentionGraph) -> tuple[Tensor, list[Chunk]] | None:
    """The end of each target's sources, int64 (T,), and the chunks; ``None`` if the graph has
    another form.

    Target ``t`` reads the sources ``0 .. end[t] - 1``, and ``end`` never decreases.
    """
    if graph.has_repeated_edges:
        return None
    return cached(graph, "prefixes in chunks", lambda: _chunks(graph))


def _chunks(graph: AttentionGraph) -> tuple[Tensor, list[Chunk]] | None:
    runs = all_runs(graph)
    T = graph.num_targets
    if runs is None:
        return None
    if bool(runs.lo.any()):  # a target that does not read source 0
        return None
    end = torch.zeros(T, dtype=torch.int64).index_copy(0, runs.row, runs.hi)
    if runs.row.unique().numel() < runs.row.numel():  # a target of several runs
        return None
    if bool((end[1:] < end[:-1]).any()):
        return None
    chunks = []
    first = 0
    begin = 0
    # one past the last target that reads the same
    alike_end = torch.searchsorted(end, end, right=True).tolist()
    while first < T:
        last = max(min(first + _CHUNK, T), alike_end[first])
        stop = int(end[last - 1])
        chunks.append(Chunk(last - first, stop - begin, alike_end[first] >= last))
        first = last
        begin = stop
    return end, chunks


def linear(graph: object, inputs: Inputs, return_weights: bool = False) -> Tensor | None:
    """The output (..., T, H, D_v) by running sums; ``None`` if the call needs edges."""
    if return_weights or not _sums_products(inputs):
        return None
    if isinstance(graph, PerExample):
        return _of_examples(graph, inputs)
    if not isinstance(graph, AttentionGraph):
        return None
    return _linear(graph, inputs)


def _sums_products(inputs: Inputs) -> bool:
    """True if weights are products, or their shares, with nothing added, bounded or dropped."""
    if inputs.normalize not in (by_sum, none):
        return False
    operands = (
        inputs.score,
        inputs.softcap,
        inputs.score_bias,
        inputs.edge_attr,
        inputs.edge_weight,
    )
    for operand in operands:
        if operand is not None:
            return False
    return inputs.dropout_p == 0.0


@not_followed
def _of_examples(graphs: PerExample, inputs: Inputs) -> Tensor | None:
    """The output of each graph with its examples."""
    for graph in graphs.different:
        if not isinstance(graph, AttentionGraph) or chunks_of(graph) is None:
            return None

    def run(graph: AttentionGraph, part: Inputs, *_: Any) -> Outputs:
        output = _linear(graph, part)
        assert output is not None
        return Outputs(output)

    return graphs._calls.attend(run, inputs, "auto", False, False).output


@not_followed  # as message passing, which it replaces
def _linear(graph: AttentionGraph, inputs: Inputs) -> Tensor | None:
    plan = chunks_of(graph)
    if plan is None:
        return None
    dtype = inputs.statistics
    heads = inputs.key.shape[-2]
    with without_autocast(inputs.query.device.type):
        query = (inputs.query.to(dtype) * inputs.scale).unflatten(-2, (heads, -1))
        key = inputs.key.to(dtype)
        value = inputs.value.to(dtype)
        # the last column sums the weights
        value = torch.cat((value, torch.ones_like(value[..., :1])), -1)
        output = _summed(query, key, value, *plan)
        total = output[..., -1:].flatten(-3, -2)
        output = output[..., :-1].flatten(-3, -2)
        if inputs.normalize is by_sum:
            output = output / torch.where(total == 0, 1.0, total)
        return output.to(inputs.query.dtype)


def _summed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    end: Tensor,
    chunks: list[Chunk],
) -> Tensor:
    """Sums of ``(q . k) v`` (..., T, H_kv, group, D_v): of earlier chunks by one matrix, of its own
    by a product.
    """
    queries = query.split([c.num_targets for c in chunks], -4)
    source_counts = [c.num_sources for c in chunks]
    keys, values = (
        x.split([*source_counts, x.shape[-3] - sum(source_counts)], -3) for x in (key, value)
    )
    state = _outer(key[..., :0, :, :], value[..., :0, :, :])
    parts = [torch.einsum("...thgd,...hde->...thge", query[..., :0, :, :, :], state)]
    target = 0
    source = 0
    for chunk, q, k, v in zip(chunks, queries, keys, values, strict=False):
        if chunk.num_sources:
            grown = state + _outer(k, v)
        else:
            grown = state
        part = torch.einsum("...thgd,...hde->...thge", q, grown if chunk.alike else state)
        if not chunk.alike:
            mask = (
                torch.arange(source, source + chunk.num_sources)
                < end[target : target + chunk.num_targets, None]
            )
            score = torch.einsum("...thgd,...shd->...hgts", q, k).where(mask.to(q.device), 0.0)
            part = part + torch.einsum("...hgts,...she->...thge", score, v)
        parts.append(part)
        state = grown
        target = target + chunk.num_targets
        source = source + chunk.num_sources
    return torch.cat(parts, -4)


def _outer(key: Tensor, value: Tensor) -> Tensor:
    return torch.einsum("...shd,...she->...hde", key, value)

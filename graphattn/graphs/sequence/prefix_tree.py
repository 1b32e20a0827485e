"""Prefix trees: sequences with shared prefixes in one row, shared tokens computed once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from ...arguments import check_shape, several
from ...errors import GraphError, ShapeError
from ...graph import AttentionGraph
from ...graph.modes import cached_property
from ...graph.runs import expand
from ..arguments import integers, one_of
from ..network.trees import ancestors

IGNORED = -100
"""The label of a token without a loss, as in ``transformers`` and ``torch.nn.CrossEntropyLoss``."""


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """Sequences that share prefixes as one row of N tokens; :func:`prefix_tree` makes it.

    The logits that predict a token are those of its parent. After a shared prefix that is not the
    token before it in the row, and one token has the logits of several next tokens: labels that
    are shifted by one place do not express that, so give a model no ``labels`` and call
    :meth:`loss` or :meth:`log_probs` with its logits.

    Dropout draws once for a token of the row: sequences share what is dropped in their prefix, as
    separate rows do not. Its expectation is that of separate rows, its noise is not.

    Attributes:
        input_ids: int64 (1, N).
        position_ids: int64 (1, N), the place of each token in its sequences, from 0.
        parents: int64 (N,), the token before each; -1 starts a sequence.
        graph: A token reads the tokens before it in its sequences, and itself:
            :func:`ancestors` of ``parents``.
        paths: int64 (B, L), the tokens of each sequence in order; -1 is padding, on the right.
        mask: bool (B, L), the tokens of each sequence that are labels.
        labels: int64 (M,), the tokens that count in the loss.
        predictors: int64 (M,), the token whose logits predict each label, its parent.
    """

    input_ids: Tensor
    position_ids: Tensor
    parents: Tensor
    graph: AttentionGraph
    paths: Tensor
    mask: Tensor
    labels: Tensor
    predictors: Tensor

    def window(self, window: int) -> AttentionGraph:
        """The graph of a sliding window: a token reads itself and the ``window - 1`` before it."""
        return ancestors(self.parents, window=window)

    def unflatten(self, values: Tensor) -> Tensor:
        """Values of the tokens of the row by sequence, 0 where there is padding.

        Args:
            values: (N, ...) or (1, N, ...), such as hidden states, values or entropies.
        Returns:
            (B, L, ...); the gradient of a shared token is the sum over its sequences.
        """
        flat = self._of_tokens(values, "values", 1)
        result = flat[self.paths.clamp(min=0)]
        padding = (self.paths < 0).reshape(*self.paths.shape, *[1] * (flat.dim() - 1))
        return result.masked_fill(padding, 0)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the labels of each sequence, given the tokens before them.

        Args:
            logits: (1, N, V) or (N, V), of the row.
        Returns:
            (B, L), float32 or wider; 0 where :attr:`mask` is False. The sum over a row is the
            log-probability of the sequence.
        Raises:
            ShapeError: If ``logits`` are not those of N tokens.
        """
        flat = self._of_logits(logits)
        of_tokens = _log_probs(flat, self.parents.clamp(min=0), self.input_ids[0])
        return self.unflatten(of_tokens).masked_fill(~self.mask, 0)

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy, the mean over :attr:`labels`.

        Args:
            logits: (1, N, V) or (N, V), of the row.
        Returns:
            The loss that a model of ``transformers`` gives for the separate rows, if shared tokens
            count in each sequence.
        Raises:
            ShapeError: If ``logits`` are not those of N tokens.
            GraphError: If no token is a label.
        """
        flat = self._of_logits(logits)
        if not self.labels.numel():
            raise GraphError(
                "loss needs a token with a label and one before it, got none; give longer sequences"
                " or other labels"
            )
        return -_log_probs(flat, self.predictors, self.labels).mean()

    def to(self, device: torch.device | str) -> "PrefixTree":
        """The tree on another device."""
        return PrefixTree(*(getattr(self, field.name).to(device) for field in fields(self)))

    @cached_property
    def _largest(self) -> int:
        """The largest token."""
        return int(self.input_ids.max())

    def _of_logits(self, logits: Tensor) -> Tensor:
        """Logits (N, V) of every token."""
        return self._of_tokens(logits, "logits", 2)

    def _of_tokens(self, values: Tensor, argument: str, least: int) -> Tensor:
        """Values (N, ...) of the tokens, without the batch of one row."""
        N = self.parents.numel()
        if values.shape[:2] == (1, N) and values.dim() > least:
            return values[0]
        if values.shape[:1] == (N,) and values.dim() >= least:
            return values
        rest = ["...", "V"][least - 1]
        raise ShapeError(
            f"{argument} must be (1, {N}, {rest}) or ({N}, {rest}), one for each token of the row, "
            f"got {tuple(values.shape)}; call the model with input_ids and position_ids of this "
            "tree"
        )

    def __repr__(self) -> str:
        sequences, longest = self.paths.shape
        total = int((self.paths >= 0).sum())
        return (
            f"PrefixTree({sequences} sequences of at most {longest} tokens: "
            f"{self.parents.numel()} tokens for {total}, {self.labels.numel()} labels)"
        )


def prefix_tree(
    sequences: Iterable[Sequence[int] | Tensor] | Tensor,
    *,
    prompt_ids: Sequence[int] | Tensor | None = None,
    parents: Sequence[int] | Tensor | None = None,
    labels: Iterable[Sequence[int] | Tensor] | Tensor | None = None,
    shared: Literal["per_sequence", "once"] = "per_sequence",
) -> PrefixTree:
    r"""Sequences that share prefixes as one row, for models that read along a graph.

    A token reads what it would read in its own sequence, so the logits, the loss and all gradients
    of the row are those of separate rows.

    Args:
        sequences: Tokens of each sequence, without padding. The row is their trie, depth first;
            sequences without a common first token are trees of their own. With ``parents``, the
            (N,) tokens of the row.
        prompt_ids: (P,) tokens before every sequence, which are then its completions: the row is
            ``[prompt | completion 0 | completion 1 | ...]``, and the prompt has no labels.
        parents: (N,) the token before each token of the row, in any order; -1 starts a sequence.
            A sequence is a path to a token that is no parent.
        labels: For each token of ``sequences`` the token itself, or -100 if it is none of the
            labels, such as what a tool wrote. By default all are.
        shared: A label in several sequences counts in each of them (``"per_sequence"``, the loss of
            separate rows), or ``"once"``.
    Returns:
        The tree; ``ga.patch`` takes its ``graph``, the model its ``input_ids`` and
        ``position_ids``.
    Raises:
        GraphError: If tokens are no integers or negative, there is no sequence, ``labels`` are
            others than the tokens, or ``parents`` have a cycle.
        GraphIndexError: If a parent is neither -1 nor a token.
    Source:
        "Prefix tree merging" of rollouts, which verl (issue 6401), TRL (pull request 7328) and NeMo
        Automodel (pull request 2564) train on. Automodel's first token of a completion has no loss;
        here the last token of the prompt predicts the first one of every completion.
    Example:
        >>> tree = prefix_tree([[7, 8], [9]], prompt_ids=[5, 6])
        >>> print(tree.input_ids, tree.position_ids, tree.parents)
        tensor([[5, 6, 7, 8, 9]]) tensor([[0, 1, 2, 3, 2]]) tensor([-1,  0,  1,  2,  1])
        >>> print(tree.labels, tree.predictors)
        tensor([7, 8, 9]) tensor([1, 2, 1])
        >>> print(tree.graph)
        AttentionGraph(ancestors([-1, 0, 1, 2, ...]): 5 nodes, 13 edges, density 0.52, rule)
        █ · · · ·
        █ █ · · ·
        █ █ █ · ·
        █ █ █ █ ·
        █ █ · · █
        >>> prefix_tree([[5, 6, 7], [5, 6, 7, 8], [5, 9]])
        PrefixTree(3 sequences of at most 4 tokens: 5 tokens for 9, 6 labels)
    """
    one_of(shared, "shared", ("per_sequence", "once"))
    if parents is not None:
        if prompt_ids is not None:
            raise GraphError("prompt_ids are for sequences, got parents too; leave out one of them")
        return _from_parents(sequences, parents, labels, shared)
    listed = several(sequences, "sequences", "must be lists of tokens", GraphError)
    rows = [_tokens(row, f"sequences[{i}]") for i, row in enumerate(listed)]
    prompt = torch.empty(0, dtype=torch.int64)
    if prompt_ids is not None:
        prompt = _tokens(prompt_ids, "prompt_ids")
    device = next((row.device for row in (prompt, *rows) if row.numel()), prompt.device)
    prompt = prompt.cpu()
    rows = [row.cpu() for row in rows]
    are_labels = [torch.ones_like(row, dtype=torch.bool) for row in rows]
    if labels is not None:
        lists = several(labels, "labels", "must be lists of tokens", GraphError)
        are_labels = [
            _are_labels(values, row, f"labels[{i}]")
            for i, (values, row) in enumerate(zip(lists, rows, strict=True))
        ]
    tokens, parent, last = _trie(rows)
    P = prompt.numel()
    above = torch.cat((torch.arange(P) - 1, torch.where(parent < 0, P - 1, parent + P)))
    ends = torch.where(last < 0, P - 1, last + P)
    paths, graph = _paths(above, ends)
    mask = torch.zeros(paths.shape, dtype=torch.bool)
    for row, of_row in enumerate(are_labels):
        mask[row, P : P + of_row.numel()] = of_row
    return _tree(torch.cat((prompt, tokens)), above, graph, paths, mask, shared).to(device)


def _from_parents(sequences: object, parents: object, labels: object, shared: str) -> PrefixTree:
    """A row of tokens and the parent of each; sequences are the paths to leaves."""
    tokens = _tokens(sequences, "sequences")
    above = integers(parents, "parents")
    check_shape(above, "parents", tokens.shape, "one for each token", GraphError)
    device = tokens.device
    tokens = tokens.cpu()
    above = above.cpu()
    keep = torch.ones_like(tokens, dtype=torch.bool)
    if labels is not None:
        keep = _are_labels(labels, tokens, "labels")
    ancestors(above)  # refuses cycles and parents that are no tokens
    is_leaf = torch.ones_like(keep)
    is_leaf[above[above >= 0]] = False
    paths, graph = _paths(above, torch.nonzero(is_leaf).flatten())
    return _tree(tokens, above, graph, paths, keep[paths.clamp(min=0)], shared).to(device)


def _trie(rows: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens and parents of the trie, depth first, and the last node of each row.

    Branches are in the order of the rows; the last node of an empty row is -1.
    """
    nodes: dict[tuple[int, int], int] = {}  # by parent and token
    paths: list[list[int]] = []
    for row in rows:
        node = -1
        path = []
        for token in row.tolist():
            node = nodes.setdefault((node, token), len(nodes))
            path.append(node)
        paths.append(path)
    # numbers rise along a path and with the first row of a branch: sorted paths are depth first
    order = torch.tensor(list(dict.fromkeys(chain.from_iterable(sorted(paths)))), dtype=torch.int64)
    place = torch.empty(len(nodes) + 1, dtype=torch.int64)
    place[order] = torch.arange(len(nodes))
    place[-1] = -1  # of no node, -1
    parents, tokens = torch.tensor(list(nodes), dtype=torch.int64).reshape(-1, 2)[order].T
    ends = torch.tensor([[-1, *path][-1] for path in paths], dtype=torch.int64)
    return tokens, place[parents], place[ends]


def _paths(parents: Tensor, ends: Tensor) -> tuple[Tensor, AttentionGraph]:
    """Nodes on the way to each end, (B, L) with -1 on the right, and the graph of ancestors."""
    if not parents.numel() or not ends.numel():
        raise GraphError("sequences must have at least one token, got none")
    graph = ancestors(parents)
    depth = graph.in_degree
    lengths = torch.zeros_like(ends)
    not_empty = ends >= 0
    lengths[not_empty] = depth[ends[not_empty]]
    paths = torch.full((ends.numel(), int(lengths.max())), -1)
    end, node = expand(graph.edges.rows(ends[not_empty]))
    row = torch.nonzero(not_empty).flatten()[end]
    paths[row, depth[node] - 1] = node
    return paths, graph


def _tree(
    tokens: Tensor,
    parents: Tensor,
    graph: AttentionGraph,
    paths: Tensor,
    mask: Tensor,
    shared: str,
) -> PrefixTree:
    """The tree of which ``mask`` (B, L) are labels, if they have a token before them."""
    mask = mask & (paths >= 0)
    mask[:, :1] = False
    labels = paths[mask]
    if shared == "once":
        labels = torch.unique(labels)
    return PrefixTree(
        tokens[None],
        graph.in_degree[None] - 1,
        parents,
        graph,
        paths,
        mask,
        tokens[labels],
        parents[labels],
    )


def _tokens(values: object, argument: str) -> Tensor:
    tokens = integers(values, argument)
    if tokens.numel() and int(tokens.min()) < 0:
        raise GraphError(f"{argument} must be tokens >= 0, got {int(tokens.min())}; remove padding")
    return tokens


def _are_labels(values: object, tokens: Tensor, argument: str) -> Tensor:
    """True for tokens that are labels, bool (n,)."""
    labels = integers(values, argument).cpu()
    check_shape(labels, argument, tokens.shape, "one for each token", GraphError)
    keep = labels != IGNORED
    wrong = torch.nonzero(keep & (labels != tokens)).flatten()
    if wrong.numel():
        raise GraphError(
            f"{argument} must be the tokens themselves or {IGNORED}, got {int(labels[wrong[0]])} at "
            f"{int(wrong[0])}; labels are not shifted"
        )
    return keep


def _log_probs(logits: Tensor, predictors: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities (M,) of labels by the logits (N, V) of their predictors."""
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    return logits[predictors, labels] - logits.logsumexp(-1)[predictors]

"""Attention as a PyG ``MessagePassing``, one message per edge: the definition that layers inherit."""

from types import SimpleNamespace
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ..errors import BackendError, OptionError
from ..graph.like import GraphLike
from ..graph.modes import without_autocast
from ..kernels.plain.sums import edge_softmax, gather, scatter_sum
from ..operands import Inputs, Outputs
from ..pyg import MessagePassing


class _NoExplainer:
    """PyG's flag ``explain`` while no explainer runs: false, as None is, and refused by a call."""

    def __bool__(self) -> bool:
        return False

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise OptionError(
            "layer.explain is a flag of PyG's explainers; call graphattn.explain(graph, "
            "heads=layer.num_heads, head_dim=layer.head_dim)"
        )


_no_explainer = _NoExplainer()


def _explain(layer: "EdgeAttention") -> Any:
    """The flag that PyG reads: True or False as an explainer set it, else one that is false."""
    if layer._explain is None:
        return _no_explainer
    return layer._explain


class EdgeAttention(MessagePassing):
    r"""Softmax attention over the edges that point at each target; no parameters.

    .. math:: o_t = \sum_{s \in \mathcal{N}(t)} \mathrm{softmax}_s(\mathrm{score}_{ts}) \, v_s
    """

    explain = MessagePassing.explain.getter(_explain)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # PyG replaces `propagate` in a class at its first use, and would take an inherited
        # replacement for the original, to which its explainers return.
        super().__init_subclass__(**kwargs)
        if "propagate" not in cls.__dict__:
            cls.propagate = MessagePassing.propagate

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=-3)
        self._alpha: Tensor | None = None  # set during a call: PyG's explainers look for it
        self._hooks = (
            self._propagate_forward_pre_hooks,
            self._propagate_forward_hooks,
            self._message_forward_pre_hooks,
            self._message_forward_hooks,
            self._aggregate_forward_pre_hooks,
            self._aggregate_forward_hooks,
        )

    def attend(self, edge_index: Tensor, size: tuple[int, int], inputs: Inputs) -> Outputs:
        """Output, alpha and lse of checked inputs; statistics are float32 or wider."""
        dtype = inputs.query.dtype
        statistics = inputs.statistics
        # of this call, since several threads may use a layer
        result = SimpleNamespace(alpha=None, lse=None, messages=None)
        with without_autocast(inputs.query.device.type):
            output = self.propagate(
                edge_index,
                query=inputs.query.to(statistics),
                key=inputs.key.to(statistics),
                value=inputs.value.to(statistics),
                score_bias=_optional(inputs.score_bias, statistics),
                edge_term=_edge_term(inputs, statistics),
                edge_attr=_optional(inputs.edge_attr, statistics),
                inputs=inputs,
                result=result,
                size=size,
            )
        self._alpha = None

        def total(weights: Tensor) -> Tensor:
            with without_autocast(weights.device.type):
                messages: Tensor = result.messages(weights)
                return scatter_sum(messages, edge_index[1], size[1], self.node_dim).to(dtype)

        return Outputs(output.to(dtype), result.alpha, result.lse, total)

    def is_observed(self) -> bool:
        """True if a PyG explainer or hook reads the messages of ``propagate``.

        Raises:
            BackendError: If a backend without messages is named.
        """
        if not self._explain and not any(self._hooks):
            return False
        backend = getattr(self, "backend", "auto")
        if backend not in ("auto", "message_passing"):
            raise BackendError(
                f"backend {backend!r} cannot run an observed layer:",
                [
                    'PyG\'s explainers and hooks read messages, which only "auto" and '
                    '"message_passing" pass'
                ],
            )
        return True

    def observed(self, graph: GraphLike, inputs: Inputs) -> Outputs:
        """The outputs of checked inputs by messages of this module, which PyG's hooks see.

        Raises:
            BackendError: If the graph is a shard that has rows of own nodes alone.
        """
        if graph.positions is not None:
            raise BackendError(
                "an observed layer cannot run on a shard by heads, with rotary or held keys:", []
            )
        union = graph.union()
        edge_index = union._listed().edge_index.to(inputs.query.device)
        size = (union.num_sources, union.num_targets)
        return graph._outputs_from_union(
            self.attend(edge_index, size, graph._call_on_union(inputs.with_tensors(union)))
        )

    def message(
        self,
        query_i: Tensor,
        key_j: Tensor,
        value_j: Tensor,
        score_bias: Optional[Tensor],
        edge_term: Optional[Tensor],
        edge_attr: Optional[Tensor],
        inputs: Any,
        result: Any,
        index: Tensor,
        edge_index_j: Tensor,
        size_i: Optional[int],
    ) -> Tensor:
        """The weighted value of every edge, (..., E, H, D_v)."""
        key = key_j
        value = value_j
        heads = query_i.shape[-2]
        group = heads // max(1, key.shape[-2])
        if group != 1:
            key = key.repeat_interleave(group, -2)
            value = value.repeat_interleave(group, -2)
        if edge_term is not None:
            edge_term = edge_term.repeat_interleave(heads // max(1, edge_term.shape[-2]), -2)
            if inputs.score is None and inputs.edge_to != "value":
                key = key + edge_term
            if inputs.edge_to != "key":
                value = value + edge_term
        absent = None
        if score_bias is not None:
            # An edge with a bias of -inf is removed: not even a NaN in its source passes. A custom
            # score may read the keys of other heads, which still have the edge.
            absent = (score_bias == -torch.inf).expand(*score_bias.shape[:-1], heads)
            absent_edges = absent.unsqueeze(-1)
            value = value.masked_fill(absent_edges, 0.0)
            if inputs.score is not None:
                absent_edges = absent_edges.all(-2, keepdim=True)
            key = key.masked_fill(absent_edges, 0.0)
        if inputs.score is None:
            score = (query_i * key).sum(-1) * inputs.scale  # (..., E, H)
        else:
            if inputs.edge_to == "value":
                edge_attr = None
            score = inputs.score(query_i, key, edge_attr)
        score = inputs.bounded(score, score_bias, absent)
        size = 0
        if size_i is not None:
            size = size_i
        if inputs.normalize is None:
            result.alpha, result.lse = edge_softmax(score, index, size)
        else:
            result.alpha = inputs.normalized(
                score, index, edge_index_j.clone(), inputs.edge_attr, size
            )
        self._alpha = result.alpha

        def messages(weights: Tensor) -> Tensor:
            return torch.nn.functional.dropout(weights, inputs.dropout_p).unsqueeze(-1) * value

        result.messages = messages
        return messages(result.alpha)

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: Optional[int] = None) -> Tensor:
        """The sum of the messages at each target, without atomics."""
        if dim_size is None:
            dim_size = 0
        return scatter_sum(inputs, index, dim_size, self.node_dim)

    def _index_select(self, src: Tensor, index: Tensor) -> Tensor:
        return gather(src, index, self.node_dim)


def _optional(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """An optional tensor in the dtype of statistics."""
    if x is None:
        return None
    return x.to(dtype)


def _edge_term(inputs: Inputs, dtype: torch.dtype) -> Tensor | None:
    """The term of edge features in key and value, (..., E, H_kv or H, D)."""
    if inputs.edge_attr is None:
        return None
    if inputs.score is not None and inputs.edge_to == "key":
        return None
    attr = inputs.edge_attr.to(dtype)
    if inputs.edge_weight is None:
        return attr.unflatten(-1, inputs.query.shape[-2:])
    return torch.einsum("...ef,hdf->...ehd", attr, inputs.edge_weight.to(dtype))

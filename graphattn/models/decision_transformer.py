"""The Decision Transformer: a trajectory of returns, states and actions as one sequence on a causal graph."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..arguments import kinds_checked, probability, tensor, width
from ..errors import ShapeError
from ..graph.foreign_names import names_checked
from ..graph.layers import Layers, layers_of
from ..graphs import causal
from .stacks import Encoder
from .tokens import check_tokens


class Prediction(NamedTuple):
    """What is expected: the action in each state, and the state and the return after each action."""

    actions: Tensor
    """(..., T, action_dim)."""
    states: Tensor
    """(..., T, state_dim)."""
    returns: Tensor
    """(..., T, 1)."""


class DecisionTransformer(nn.Module):
    """The action that brings a wanted return, from what was wanted, seen and done before.

    Step t is three nodes, the return that is still to come, the state and the action, R_1, s_1, a_1, R_2, ...; they
    share the vector of their time. The node of a state predicts the action; that of an action, the next
    state and return.

    Args:
        state_dim: Numbers of a state.
        action_dim: Numbers of an action.
        embed_dim: C.
        num_heads: H.
        num_layers: Blocks.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        max_len: Times that an episode may have.
        tanh: Whether actions are in [-1, 1].
        graph: What ``forward`` reads along if it is given none, of 3 T nodes; causal by default.
        activation: Of the feed-forwards.
        dropout: On the embeddings, and as in the blocks.
        options: Further arguments of :class:`~graphattn.nn.TransformerBlock`.

    Source: Chen et al. 2021, "Decision Transformer", section 3 and figure 1. Equal to ``DecisionTransformerModel`` of
    ``transformers``, :func:`graphattn.models.from_hf`.

    Example:
        >>> import graphattn as ga
        >>> model = DecisionTransformer(state_dim=5, action_dim=2, embed_dim=8, num_layers=2)
        >>> states, actions, returns = torch.randn(4, 6, 5), torch.randn(4, 6, 2), torch.randn(4, 6, 1)
        >>> model(states, actions, returns, torch.arange(6)).actions.shape
        torch.Size([4, 6, 2])
        >>> markov = ga.graphs.sliding_window(..., 2)  # an action reads its state and the return, no history
        >>> model(states, actions, returns, torch.arange(6), markov).actions.shape
        torch.Size([4, 6, 2])
    """

    @kinds_checked()
    def __init__(
        self,
        state_dim: int = 17,
        action_dim: int = 4,
        embed_dim: int = 128,
        num_heads: int = 1,
        num_layers: int = 3,
        hidden: int | None = None,
        *,
        max_len: int = 4096,
        tanh: bool = True,
        graph: Layers | None = None,
        activation: str = "relu",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        state_dim, action_dim = width(state_dim, "state_dim"), width(action_dim, "action_dim")
        embed_dim = width(embed_dim, "embed_dim")
        self.of_time = nn.Embedding(width(max_len, "max_len"), embed_dim)
        self.of_return, self.of_state = nn.Linear(1, embed_dim), nn.Linear(state_dim, embed_dim)
        self.of_action = nn.Linear(action_dim, embed_dim)
        self.norm, self.dropout = nn.LayerNorm(embed_dim), nn.Dropout(probability(dropout, "dropout"))
        options |= {"activation": activation, "dropout": dropout}
        self.stack = Encoder(num_layers, embed_dim, num_heads, hidden, **options)
        self.to_action, self.to_state = nn.Linear(embed_dim, action_dim), nn.Linear(embed_dim, state_dim)
        self.to_return, self.tanh = nn.Linear(embed_dim, 1), tanh
        self.graph = layers_of(causal(..., ...) if graph is None else graph, num_layers)

    @names_checked
    def forward(
        self, states: Tensor, actions: Tensor, returns: Tensor, times: Tensor, graph: Layers | None = None
    ) -> Prediction:
        """What is expected at each step.

        Args:
            states: (..., T, state_dim).
            actions: (..., T, action_dim); that of the last step is not read by its own prediction.
            returns: (..., T, 1), still to come at each step.
            times: Integers (T,) or (..., T). Trajectories of several lengths are one, with times that start again and
                ``ga.disjoint_union`` of their graphs.
            graph: Of 3 T nodes, one for all layers or a list; the model's own by default.

        Raises:
            ShapeError: If a tensor does not fit.
            PositionIndexError: If a time is beyond ``max_len``.
        """
        given = {"states": states, "actions": actions, "returns": returns}
        steps = tensor(states, "states", "(..., T, state_dim)", ShapeError).shape[:-1]
        for (name, x), part in zip(given.items(), (self.of_state, self.of_action, self.of_return), strict=True):
            shape = (*steps, part.in_features)
            if tensor(x, name, str(shape), ShapeError).shape != shape:
                raise ShapeError(f"{name} must have shape {shape}, got {tuple(x.shape)}")
        check_tokens("times", times, self.of_time.num_embeddings)
        if times.shape not in (steps, steps[-1:]):
            raise ShapeError(f"times must have shape {tuple(steps)} or {tuple(steps[-1:])}, got {tuple(times.shape)}")
        time = self.of_time(times)
        parts = (self.of_return(returns) + time, self.of_state(states) + time, self.of_action(actions) + time)
        x = self.dropout(self.norm(torch.stack(parts, -2).flatten(-3, -2)))  # (..., 3 T, C)
        x = self.stack(x, self.graph if graph is None else graph)
        _, of_state, of_action = x.unflatten(-2, (-1, 3)).unbind(-2)
        action = self.to_action(of_state)
        return Prediction(
            torch.tanh(action) if self.tanh else action, self.to_state(of_action), self.to_return(of_action)
        )

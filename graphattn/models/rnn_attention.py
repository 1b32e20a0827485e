"""Attention of a recurrent decoder: its states read the encoder's by the additive score or by a product."""

from torch import Tensor, nn

from ..backends import EdgeWeights
from ..graph import AttentionGraph
from ..nn import GraphAttention


class RecurrentAttention(nn.Module):
    r"""States that read a memory on a bipartite graph; what is read is the memory itself.

    .. math:: c_t = \sum_{i \in \mathcal{N}(t)} \mathrm{softmax}_i \, \mathrm{score}(s_t, h_i) \; h_i

    The score is :math:`v \cdot \tanh(W s_t + U h_i)` ("bahdanau"), :math:`s_t \cdot h_i` ("dot") or
    :math:`s_t \cdot U h_i` ("general").

    Args:
        dim: Width of the states and of the memory.
        kind: "bahdanau", "dot" or "general".

    Source: Bahdanau et al. 2015, appendix A.1.2; Luong et al. 2015, section 3.1.

    Example:
        >>> import torch, graphattn as ga
        >>> states, memory = torch.randn(2, 8), torch.randn(5, 8)
        >>> read, weights = RecurrentAttention(8, "bahdanau")(states, memory, ga.graphs.cross(2, 5))
        >>> read.shape, weights.dense().shape
        (torch.Size([2, 8]), torch.Size([1, 2, 5]))
    """

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        additive = kind == "bahdanau"
        self.memory = nn.Identity() if kind == "dot" else nn.Linear(dim, dim, bias=False)  # U
        self.layer = GraphAttention(dim, 1, bias=False, out_proj=False, score="additive" if additive else "dot")
        for name in ("k_proj", "v_proj") if additive else ("q_proj", "k_proj", "v_proj"):
            self.layer.register_module(name, nn.Identity())

    def keys(self, memory: Tensor) -> Tensor:
        """U h, the same for every target."""
        return self.memory(memory)

    def forward(
        self, state: Tensor, memory: Tensor, graph: AttentionGraph, keys: Tensor | None = None
    ) -> tuple[Tensor, EdgeWeights]:
        """What states (..., T, C) read of the memory (..., S, C), and with which weights; its keys may be given."""
        keys = self.keys(memory) if keys is None else keys
        if isinstance(self.layer.q_proj, nn.Identity):
            state = state.to(keys.dtype)  # autocast narrows linear layers, and no GRU on a CPU
        read, weights = self.layer(state, graph, context=(keys, memory.to(keys.dtype)), return_weights=True)
        return read, weights

"""How a recurrent decoder's state reads an encoder's: by the additive score, or by a product."""

from torch import Tensor, nn

from ..attention import AttentionOutput, attention
from ..backends import EdgeWeights
from ..graph import AttentionGraph
from ..nn import GraphAttention


class BahdanauAttention(nn.Module):
    r"""A state reads a memory by the additive score, on a bipartite graph; what is read is the memory itself.

    .. math:: c_t = \sum_{i \in \mathcal{N}(t)} \mathrm{softmax}_i \, (v \cdot \tanh(W s_t + U h_i)) \; h_i

    Args:
        dim: Width of the states, of the memory, and of the hidden layer between them.

    Source: Bahdanau et al. 2015, appendix A.1.2.

    Example:
        >>> import torch, graphattn as ga
        >>> states, memory = torch.randn(2, 8), torch.randn(5, 8)
        >>> read, weights = BahdanauAttention(8)(states, memory, ga.graphs.cross(2, 5))
        >>> read.shape, weights.dense().shape
        (torch.Size([2, 8]), torch.Size([1, 2, 5]))
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.memory = nn.Linear(dim, dim, bias=False)  # U
        self.layer = GraphAttention(dim, 1, bias=False, out_proj=False, score="additive")  # W and v
        for name in ("k_proj", "v_proj"):
            self.layer.register_module(name, nn.Identity())

    def keys(self, memory: Tensor) -> Tensor:
        """U h, the same for every target."""
        return self.memory(memory)

    def forward(
        self, state: Tensor, memory: Tensor, graph: AttentionGraph, keys: Tensor | None = None
    ) -> tuple[Tensor, EdgeWeights]:
        """What states (..., T, C) read of the memory (..., S, C), and with which weights; its keys may be given."""
        keys = self.keys(memory) if keys is None else keys
        given = keys, memory.to(keys.dtype)  # autocast narrows linear layers, and no GRU on a CPU
        read, weights = self.layer(state, graph, context=given, return_weights=True)
        return read, weights


class LuongAttention(nn.Module):
    """A state reads a memory by a product: ``s . h`` ("dot") or ``s . W h`` ("general"); no other projections.

    Args:
        dim: Width of the states and of the memory.
        score: "dot" or "general".

    Source: Luong et al. 2015, section 3.1.
    """

    def __init__(self, dim: int, score: str = "dot") -> None:
        super().__init__()
        self.weight = nn.Linear(dim, dim, bias=False) if score == "general" else nn.Identity()

    def keys(self, memory: Tensor) -> Tensor:
        """W h, the same for every target."""
        return self.weight(memory)

    def forward(
        self, state: Tensor, memory: Tensor, graph: AttentionGraph, keys: Tensor | None = None
    ) -> tuple[Tensor, EdgeWeights]:
        """What states (..., T, C) read of the memory (..., S, C), and with which weights; its keys may be given."""
        key = (self.keys(memory) if keys is None else keys).unsqueeze(-2)  # one head
        query, value = (x.unsqueeze(-2).to(key.dtype) for x in (state, memory))
        result = attention(query, key, value, graph, scale=1.0, return_weights=True)
        assert isinstance(result, AttentionOutput)
        assert result.weights is not None
        return result.output.squeeze(-2), result.weights

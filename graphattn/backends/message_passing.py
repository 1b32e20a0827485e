"""The definition: attention as PyG message passing, one message per edge. Runs every call, slowly."""

from typing import Any

import torch

from ..graph import AttentionGraph
from ..graph.modes import not_followed
from ..operands import Inputs, Outputs
from .base import Backend
from .request import Request, edges_too_many


class MessagePassingBackend(Backend):
    """Any graph, option, dtype and number of derivatives; stores (E, H, D) several times."""

    name = "message_passing"
    call_ms = 0.42
    training_factor = 2.2
    ns = {"edge": 4.5}
    cuda = {"edge": 0.02}
    lists_edges = True

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        return edges_too_many(graph)

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        itemsize = torch.finfo(request.statistics).bits // 8
        per_edge = request.heads * (2 * request.head_dim + 2 * request.value_dim + 4)
        return 16 * graph.num_edges + request.batch * graph.num_edges * per_edge * itemsize

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """Edges."""
        return "edge", graph.num_edges

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A narrow window, its edges listed."""
        from ..graphs import sliding_window

        return [(sliding_window(1024, 17, causal=True).materialise(), {})]

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        return attend(graph, inputs)


@not_followed  # PyG's propagate and the graph's caches are Python; a compiled program breaks here
def attend(graph: AttentionGraph, inputs: Inputs) -> Outputs:
    """The definition on checked inputs."""
    from .edge_attention import EdgeAttention  # PyG, which takes seconds to import

    edge_index = graph._listed().edge_index.to(inputs.query.device)
    return EdgeAttention().attend(edge_index, (graph.num_sources, graph.num_targets), inputs)

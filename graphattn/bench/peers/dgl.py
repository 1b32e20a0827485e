"""DGL, where it is installed: its fused products over edges, softmax and sum."""

from importlib.util import find_spec

import torch
from torch import Tensor

from ..problem import Problem
from .base import Forward, Peer, too_large


class DGL(Peer):
    """``u_dot_v``, ``edge_softmax``, ``u_mul_e_sum``; a batch is a disjoint union."""

    name = "DGL"
    about = "dgl.ops: u_dot_v, edge_softmax, u_mul_e_sum"

    def reasons_against(self, problem: Problem) -> list[str]:
        if find_spec("dgl") is None:
            return ["dgl is not installed"]
        per_edge = 4 * problem.heads * problem.dtype.itemsize + 32
        return too_large("its (E, H) tensors and lists of edges", problem.edges * per_edge, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, *x.shape[-2:])  # (B * N, H, D)

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        import dgl

        graph = problem.graph
        source, target = (
            torch.cat([nodes + i * size for i in range(problem.batch)]).to(problem.device)
            for nodes, size in ((graph.source, graph.num_sources), (graph.target, graph.num_targets))
        )
        sizes = {"s": problem.batch * graph.num_sources, "t": problem.batch * graph.num_targets}
        edges = dgl.heterograph({("s", "read by", "t"): (source, target)}, num_nodes_dict=sizes)
        edges.create_formats_()
        scale = problem.head_dim**-0.5

        def forward() -> Tensor:
            score = dgl.ops.u_dot_v(edges, key, query * scale)
            return dgl.ops.u_mul_e_sum(edges, value, dgl.ops.edge_softmax(edges, score))

        return forward

"""A fingerprint of a graph and its partition: processes that hold others are refused, not run."""

from typing import Any

import torch
from torch import Tensor

from ..errors import ProcessError
from ..graph import AttentionGraph
from ..graph.runs import hashed
from ..versions import VERSION
from .exchange import Processes
from .files import EdgeFiles
from .own import OwnEdges, edges_into


def agree(
    processes: Processes,
    graph: AttentionGraph | EdgeFiles,
    target_part: Tensor,
    own_edges: OwnEdges,
    facts: dict[str, Any],
) -> None:
    """Refuse processes of other versions, options, partitions or edges than the others'.

    A list of edges is compared whole. Of a rule every process compares its own edges with those
    that the process before it lists, so that none lists more than twice its share.

    Raises:
        ProcessError: If they differ; it names a process that does, and in what.
    """
    if processes.number == 1:
        return
    own_facts: dict[str, Any] = {
        "version of graphattn": VERSION,
        "version of torch": torch.__version__,
        **facts,
    }
    sizes = graph.num_targets, graph.num_sources
    own_facts["numbers of targets and sources"] = sizes
    if not isinstance(graph, AttentionGraph):
        own_facts["edges"] = hash(tuple(graph.hashes))
    elif graph.edges.is_listed:
        edge_index = graph.edges.edge_index  # type: ignore[attr-defined]
        own_facts["edges"] = hashed(edge_index.cpu().flatten())
    every = processes.gathered(own_facts)
    for fact in own_facts:
        values = [process_facts.get(fact) for process_facts in every]
        usual = max(values, key=values.count)
        for rank, value in enumerate(values):
            if value != usual:
                raise ProcessError(
                    f"processes must share one graph and one partition, but the {fact} of process "
                    f"{rank} differ from those of the others: {value}, not {usual}; make the graph "
                    "of one seed or file in every process"
                )
    if isinstance(graph, AttentionGraph) and not graph.edges.is_listed:
        after = (processes.rank + 1) % processes.number
        next_edges = edges_into(graph, torch.nonzero(target_part == after).flatten())
        hashes = processes.gathered(
            tuple(hashed(torch.cat(edges[:3])) for edges in (own_edges, next_edges))
        )
        for rank in range(processes.number):
            before = (rank - 1) % processes.number
            if hashes[rank][0] != hashes[before][1]:
                raise ProcessError(
                    f"processes must share one graph, but processes {before} and {rank} list "
                    f"different edges into the targets of process {rank}; make the graph by one "
                    "call in every process"
                )

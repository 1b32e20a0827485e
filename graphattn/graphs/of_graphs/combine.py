"""Graphs composed of graphs: blocks that read blocks, and several sets of nodes side by side."""

from collections.abc import Sequence

import torch

from ...arguments import short_name
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.algebra import as_list, union_of_blocks
from ...graph.deferred.expression import builder
from ..arguments import whole
from ..sequence.blocks import in_blocks


@builder
def block_sparse(
    layout: AttentionGraph,
    block: int,
    num_nodes: int | None = None,
) -> AttentionGraph:
    r"""Blocks of consecutive tokens that read each other along the edges of a small graph.

    .. math:: \mathcal{N}(t) = \{ s : \lfloor s / b \rfloor \in \mathcal{N}_{layout}(\lfloor t / b \rfloor) \}

    Args:
        layout: The graph between blocks, square.
        block: b, tokens in a block.
        num_nodes: N; a multiple of the block by default. A smaller N cuts the last block.
    Returns:
        A rule that stores the layout.
    Raises:
        GraphError: If ``layout`` is not square or repeats edges, or ``num_nodes`` does not fit its
            blocks.
    Source:
        Gray et al. 2017, "GPU Kernels for Block-Sparse Weights"; the ``layout`` of DeepSpeed's
        sparse attention. BigBird (Zaheer et al. 2020) is a layout of a window, global blocks and
        random blocks.
    Example:
        >>> from graphattn.graphs import causal
        >>> print(block_sparse(causal(3), 2, num_nodes=5))
        AttentionGraph(block_sparse(causal(3), 2, num_nodes=5): 5 nodes, 17 edges, density 0.68, rule)
        █ █ · · ·
        █ █ · · ·
        █ █ █ █ ·
        █ █ █ █ ·
        █ █ █ █ █
    """
    blocks = layout.num_nodes
    block = whole(block, "block", 1)
    N = blocks * block
    if num_nodes is not None:
        N = num_nodes
    N = whole(N, "num_nodes")
    if -(-N // block) != blocks:
        raise GraphError(
            f"num_nodes={N} needs {-(-N // block)} blocks of {block}, but layout has {blocks}"
        )
    layout._need_set("block_sparse")
    cut = ""
    if num_nodes is not None:
        cut = f", num_nodes={N}"
    name = short_name(f"block_sparse({layout.name}, {block}{cut})")
    return AttentionGraph(in_blocks(layout.edges, block, N), name, layout.device)


@builder
def composite(rows: Sequence[Sequence[AttentionGraph | None]]) -> AttentionGraph:
    """Several sets of nodes as one graph, from a matrix of graphs between the sets.

    Args:
        rows: ``rows[i][j]`` is the graph whose targets are set i and whose sources are set j, or
            ``None``. Nodes are numbered set after set. Rows and columns may be different sets, as
            in cross-attention.
    Returns:
        A rule, unless every part is listed.
    Raises:
        GraphError: If the rows differ in length, parts of a row differ in targets, parts of a
            column in sources, or the size of a row or column is open because it holds no graph.
    Source:
        The diagonal alone is :func:`graphattn.disjoint_union`. The matrix is that of
        ``numpy.block``.
    Example:
        >>> from graphattn.graphs import causal, cross, full
        >>> print(composite([[full(2), None], [cross(3, 2), causal(3)]]))  # an encoder and its decoder
        AttentionGraph(composite([[full(2), None], [cross(3, 2), causal(3)]]): 5 nodes, 16 edges, density 0.64, rule)
        █ █ · · ·
        █ █ · · ·
        █ █ █ · ·
        █ █ █ █ ·
        █ █ █ █ █
    """
    table = _table(rows)
    targets = [
        _size([cell.num_targets for cell in row if cell is not None], f"row {i}", "targets")
        for i, row in enumerate(table)
    ]
    columns = list(zip(*table, strict=True))
    sources = [
        _size([cell.num_sources for cell in column if cell is not None], f"column {j}", "sources")
        for j, column in enumerate(columns)
    ]
    parts = [cell for row in table for cell in row if cell is not None]
    devices = {cell.device for cell in parts if not cell.is_rule}
    if devices:
        device = devices.pop()
    elif parts:
        device = parts[0].device
    else:
        device = torch.device("cpu")
    cells = [
        (cell.edges, sum(targets[:i]), sum(sources[:j]))
        for i, row in enumerate(table)
        for j, cell in enumerate(row)
        if cell is not None
    ]
    edges = union_of_blocks(cells, sum(targets), sum(sources))
    if not any(cell.is_rule for cell in parts):
        edges = as_list(edges, None).to(device)
    rows_shown = [f"[{', '.join(getattr(cell, 'name', 'None') for cell in row)}]" for row in table]
    name = short_name(f"composite([{', '.join(rows_shown)}])")
    return AttentionGraph(edges, name, device)


def _table(rows: Sequence[Sequence[AttentionGraph | None]]) -> list[list[AttentionGraph | None]]:
    for row in rows:
        for cell in row:
            if cell is not None:
                cell._need_set("composite")
    return [list(row) for row in rows]


def _size(sizes: list[int], where: str, side: str) -> int:
    if not sizes:
        raise GraphError(
            f"{where} of composite holds no graph, so its {side} are unknown; see cross(T, S) - "
            "cross(T, S)"
        )
    if len(set(sizes)) > 1:
        raise GraphError(
            f"{where} of composite must have the same number of {side} throughout, got {sizes}"
        )
    return sizes[0]

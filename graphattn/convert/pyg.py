"""PyTorch Geometric's containers of graphs. Row 0 of ``edge_index`` is the source there, too."""

import warnings
from typing import TYPE_CHECKING, Any

import torch

from ..errors import GraphError
from ..graph import AttentionGraph, PerExample, need_graph
from ..graph.edge_index import from_edge_index

if TYPE_CHECKING:
    from ..pyg import Data, EdgeIndex


def from_pyg(
    data: Any,
    *,
    duplicates: str = "error",
    name: str | None = None,
    per_example: bool = False,
) -> Any:
    """A graph from PyG's ``Data``, ``Batch`` or ``EdgeIndex``; edges keep their order.

    Sizes come from the container (``num_nodes``, ``x``, ``pos``, ``sparse_size``), never from the
    largest index. Claims of an ``EdgeIndex`` about its order or symmetry are not used, so that
    wrong ones do no harm. Features are not read; of a cell that repeats, ``cell`` and ``offsets``
    (E, d) of the edges are (see :class:`graphattn.shapes.AddEdges`).

    Args:
        data: The container.
        duplicates: Treatment of repeated edges: ``"error"``, ``"keep"`` each copy, or ``"merge"``
            copies.
        name: The name that ``repr`` shows.
        per_example: True for a :class:`~graphattn.PerExample` of a ``Batch``, a graph for each of
            its shapes, for features (B, N, C) such as PyG's ``to_dense_batch`` makes. By default
            all are one graph, for the features of a ``Batch``, all nodes in one row.
    Raises:
        GraphError: If there is no ``edge_index``, the number of nodes is unknown, or an edge is
            repeated and ``duplicates="error"``.
        GraphIndexError: If an index is outside its range.
    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4))
        AttentionGraph(pyg: 4 nodes, 2 edges, density 0.125, listed)
        >>> from torch_geometric.data import Batch
        >>> shape = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
        >>> from_pyg(Batch.from_data_list([shape, shape]), per_example=True)
        PerExample(pyg[b=0], pyg[b=1]: 2 examples of 4 nodes)
    """
    from ..pyg import Data, EdgeIndex

    if not name:
        name = "pyg"
    if per_example:
        return _of_batch(data, duplicates, name)
    if isinstance(data, Data):
        edge_index = _indexed(data)
        return from_edge_index(
            edge_index,
            num_nodes=_num_nodes(data),
            duplicates=duplicates,
            name=name,
            **_images(data),
        )
    if isinstance(data, EdgeIndex):
        return from_edge_index(data, duplicates=duplicates, name=name)
    raise GraphError(
        f"data must be a PyG Data or EdgeIndex, got a {type(data).__name__}; a plain tensor, or "
        "the edge_index of one type of a HeteroData, goes to from_edge_index, with its sizes"
    )


def _of_batch(batch: Any, duplicates: str, name: str) -> PerExample:
    """The graph of each shape of a batch."""
    from ..pyg import Batch

    if not isinstance(batch, Batch):
        raise GraphError(
            f"data must be a PyG Batch for per_example=True, got a {type(batch).__name__}"
        )
    try:
        shapes = batch.to_data_list()
    except RuntimeError:
        raise GraphError(
            "data must be a Batch of Batch.from_data_list, which keeps the shapes apart, got one "
            "made otherwise; pass PerExample of a from_edge_index for each shape"
        ) from None
    graphs = [
        from_pyg(shape, duplicates=duplicates, name=f"{name}[b={number}]")
        for number, shape in enumerate(shapes)
    ]
    return PerExample(tuple(graphs))


def _indexed(store: Any) -> Any:
    if "edge_index" in store and store.edge_index is not None:
        return store.edge_index
    other = next((key for key in ("adj_t", "adj", "face") if key in store), None)
    hint = {
        "face": (
            "; apply torch_geometric.transforms.FaceToEdge, or see graphattn.graphs.mesh_vertices"
        ),
        None: "; without edges it is torch.empty(2, 0)",
    }.get(other, f"; it has {other}: pass its indices as edge_index (row 0 sources)")
    raise GraphError(f"data must have an edge_index (2, E){hint}")


def _images(store: Any) -> dict[str, Any]:
    """The offsets and the cells of a shape with both, or of a batch of such shapes; cells of zeros
    stand for none.
    """
    offsets = store.get("offsets")
    cell = store.get("cell")
    if offsets is None or (cell is not None and not bool(cell.any())):
        return {}
    if cell is not None and cell.dim() == 2:  # of a Batch of plain Data, one below the other
        cell = cell.unflatten(0, (-1, cell.shape[1]))
    return {"offsets": offsets, "cell": cell, "batch": store.get("batch")}


def _num_nodes(store: Any) -> int:
    with warnings.catch_warnings():  # PyG warns, and then uses the largest index plus one
        warnings.simplefilter("error", UserWarning)
        try:
            size = store.num_nodes
        except UserWarning:
            size = None
    if size is None:
        raise GraphError("data has no number of nodes (some may have no edge); set num_nodes")
    return size


def to_pyg(graph: AttentionGraph) -> "Data":
    """A PyG ``Data`` with ``edge_index`` and ``num_nodes``, edges in the caller's order.

    Of a graph in a cell that repeats it has ``offsets`` (E, d) and ``cell`` (d, d), too; of one in
    several cells, ``cell`` (C, d, d) and ``batch`` (N,), the cell of each node.

    Raises:
        GraphError: If the graph is not square (see :func:`to_pyg_edge_index`), or its edges would
            take more than 4 GiB.
    Example:
        >>> from graphattn.convert import from_mask
        >>> to_pyg(from_mask([[True, False], [True, True]]))
        Data(edge_index=[2, 3], num_nodes=2)
    """
    need_graph(graph, "to_pyg")
    from ..pyg import Data

    if not graph.is_square:
        raise GraphError(
            f"a Data needs one set of nodes, got {graph.num_sources} sources and "
            f"{graph.num_targets} targets; use to_pyg_edge_index"
        )
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    images = graph.images
    if images is None:
        return data
    data.offsets = graph.offsets
    data.cell = images.cells.clone()
    if images.cell_of_edge is None:
        data.cell = data.cell[0]
    else:
        data.batch = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
        data.batch[graph.target] = images.cell_of_edge
    return data


def to_pyg_edge_index(graph: AttentionGraph) -> "EdgeIndex":
    """A PyG ``EdgeIndex`` with ``sparse_size`` (S, T), in the caller's order, not marked as sorted.

    Raises:
        GraphError: If the edges would take more than 4 GiB.
    Example:
        >>> from graphattn.convert import from_mask
        >>> to_pyg_edge_index(from_mask([[True, False, True]])).sparse_size()
        (3, 1)
    """
    need_graph(graph, "to_pyg_edge_index")
    from ..pyg import EdgeIndex

    return EdgeIndex(graph.edge_index, sparse_size=(graph.num_sources, graph.num_targets))

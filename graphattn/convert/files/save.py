"""Edges into files that :func:`load_edges` reads back."""

from typing import BinaryIO

import numpy as np

from ...errors import LoaderError
from ...graph import AttentionGraph
from ...io.reading import PathLike, file_name, suffix
from ...io.writing import replace_file

KINDS = (".npz", ".csv")


def save_edges(path: PathLike, graph: AttentionGraph) -> None:
    r"""Write the edges of a graph, in its edge order; an existing file is replaced atomically.

    Args:
        path: One of

            * .npz: ``edge_index`` (2, E) int64, ``num_sources`` and ``num_targets``:
              :func:`load_edges` returns the same graph.
            * .csv: a row of names, then ``source,target`` on each line, for other programs. It
              holds no sizes: ``load_edges(path, header=True, num_sources=..., num_targets=...)``. A
              graph without edges is refused.
        graph: The graph; a rule's edges are listed first.

    Raises:
        LoaderError: If the ending is unknown, the file cannot be written, or a .csv would be empty.
        GraphError: If a rule has too many edges to list.

    Example:
        >>> import pathlib, tempfile
        >>> from graphattn import graphs
        >>> from graphattn.convert.files import load_edges
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "window.csv"
        >>> save_edges(path, graphs.sliding_window(3, 2, causal=True))
        >>> path.read_text().split()
        ['source,target', '0,0', '0,1', '1,1', '1,2', '2,2']
        >>> load_edges(path, header=True).source.tolist()
        [0, 0, 1, 1, 2]
    """
    kind = suffix(path, KINDS, "save_edges")
    if kind == ".csv" and not graph.num_edges:
        raise LoaderError(
            f"{file_name(path)}: expected a graph with edges, got {graph!r}. Try: .npz, which keeps "
            "its sizes."
        )
    edges = graph.edge_index.cpu().numpy()
    replace_file(path, lambda file: _write(file, kind, edges, graph))


def _write(file: BinaryIO, kind: str, edges: np.ndarray, graph: AttentionGraph) -> None:
    if kind == ".npz":
        np.savez(
            file, edge_index=edges, num_sources=graph.num_sources, num_targets=graph.num_targets
        )
    else:
        np.savetxt(file, edges.T, "%d", ",", header="source,target", comments="")

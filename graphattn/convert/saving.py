"""Graphs saved beside checkpoints: in a file, or as a dict in a configuration, without code."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from ..arguments import whole
from ..errors import GraphError, LoaderError, need_extra
from ..graph.saving import Savable, from_plain, parsed, to_plain
from ..io.reading import MAX_BYTES, PathLike, file_name, read, suffix
from ..io.writing import replace_file

KINDS = (".json", ".safetensors")
_KEY = "graphattn"  # in the metadata of a safetensors file
_LONGEST_HEADER = 8 << 20


def graph_to_dict(graph: Savable) -> dict[str, Any]:
    """The graph as JSON data, for the configuration that is saved with a model.

    Edges are saved as tensors, those of rules as runs of sources, many numbers in base64; with a
    rule its expression is saved as text, for :func:`audit`. A pattern is saved as text alone.
    Devices are not saved.


    Args:
        graph: An :class:`AttentionGraph`, :class:`Pattern`, :class:`PerHead`, :class:`PerExample`,
            :class:`Relations` or a list of layers.

    Raises:
        GraphError: If it is of another type, or a rule of more than 16,777,216 intervals of
            sources.

    Example:
        >>> from graphattn.graphs import sliding_window
        >>> graph_to_dict(sliding_window(..., 9, causal=True))["graphs"]
        [{'expression': 'sliding_window(..., 9, causal=True)', 'held': []}]
    """
    return to_plain(graph)


def graph_from_dict(data: Any) -> Any:
    """The graph of data from :func:`graph_to_dict`, with its edge order and name, on the CPU.

    No data is executed, and no builder is called: edges are checked, and names in an expression are
    looked up.


    Args:
        data: The data, which may be untrusted.

    Raises:
        LoaderError: If it is not such data, or of another version.

    Example:
        >>> from graphattn.graphs import causal, full
        >>> from graphattn import PerHead
        >>> graph_from_dict(graph_to_dict(PerHead((causal(4), full(4)))))
        PerHead(causal(4), full(4): 4 nodes)
    """
    return from_plain(data)


def save_graph(graph: Savable, path: PathLike) -> None:
    """Write a graph to a file; an existing file is replaced atomically.

    Args:
        graph: As for :func:`graph_to_dict`.
        path: A readable .json, or a .safetensors (``pip install 'graphattn[hf]'``) for many
            listed edges.

    Raises:
        GraphError: As :func:`graph_to_dict` does.
        LoaderError: If the ending is unknown, or the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> from graphattn.graphs import global_tokens, sliding_window
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "longformer.json"
        >>> save_graph(sliding_window(..., 513, causal=False) | global_tokens(..., (0,)), path)
        >>> load_graph(path)
        Pattern(sliding_window(..., 513, causal=False) | global_tokens(..., (0,)))
    """
    kind = suffix(path, KINDS, "save")
    if kind == ".json":
        data = to_plain(graph)
        head = json.dumps({**data, "graphs": []})
        graphs = ",\n".join(json.dumps(graph, allow_nan=False) for graph in data["graphs"])
        content = (head.replace('"graphs": []', f'"graphs": [\n{graphs}\n]') + "\n").encode()
    else:
        content = _safetensors(graph)
    replace_file(path, lambda file: file.write(content))


def load_graph(path: PathLike, *, max_bytes: int = MAX_BYTES) -> Any:
    """The graph, pattern, graphs per head, relations or list of layers in a saved file.

    Args:
        path: The file, which may be untrusted; see :func:`graph_from_dict`.
        max_bytes: Limit of the file's size, 1 GiB by default.

    Raises:
        LoaderError: If it is not such a file, or of another version.
        GraphError: If ``max_bytes`` is not a size.
    """
    kind = suffix(path, KINDS, "load")
    name = file_name(path)
    content = read(path, whole(max_bytes, "max_bytes", 0, GraphError)).data
    if kind == ".safetensors":
        text, tensors = _opened(content, name)
        return from_plain(parsed(text, name), tensors, where=name)
    return from_plain(parsed(content, name), [], where=name)


def is_saved_graph(path: PathLike) -> bool:
    """True if the name of a file has an ending of :func:`save_graph`."""
    return Path(file_name(path)).suffix.lower() in KINDS


def _safetensors(graph: Savable) -> bytes:
    tensors: list[Tensor] = []
    text = json.dumps(to_plain(graph, tensors), allow_nan=False)
    tensors_by_number = {
        str(number): x.cpu().contiguous().clone() for number, x in enumerate(tensors)
    }
    content = bytes(_library().save(tensors_by_number, metadata={_KEY: text}))
    if int.from_bytes(content[:8], "little") > _LONGEST_HEADER:
        raise GraphError(
            "the expressions of these graphs are too long for a safetensors header; save it as "
            ".json"
        )
    return content


def _opened(data: bytes, name: str) -> tuple[str, list[Tensor]]:
    """The JSON and the tensors of a safetensors file."""
    library = _library()
    try:
        loaded = library.load(data)
    except Exception as error:  # SafetensorError, and torch's errors of dtypes and shapes
        raise LoaderError(
            f"{name}: expected a safetensors file, got: {str(error)[:200]}. Try: copy the file "
            "again."
        ) from None
    size = int.from_bytes(data[:8], "little")
    metadata = parsed(data[8 : 8 + size], name).get("__metadata__")
    text = None
    if metadata:
        text = metadata.get(_KEY)
    numbers = [str(number) for number in range(len(loaded))]
    if text is None or loaded.keys() != set(numbers):
        raise LoaderError(
            f"{name}: expected a graph, got other tensors. Try: a file that graphattn.save wrote."
        )
    return text, [loaded[number] for number in numbers]


def _library() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise need_extra("safetensors", "hf") from None
    return safetensors.torch

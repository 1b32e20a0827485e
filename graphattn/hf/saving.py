"""Graphs in a model's configuration, saved with it and ignored by transformers alone."""

from typing import Any

from torch import nn

from ..convert import graph_from_dict, graph_to_dict
from ..errors import LoaderError, need_extra
from ..graph import Pattern
from .graph_option import OWN_MASKS, is_graph

KEY = "graphattn"  # of the configuration


def to_data(graph: Any) -> Any:
    """The graphs given to ``patch`` as JSON data; a function is stored by name."""
    if isinstance(graph, Pattern) and graph.expression.has_functions:
        return {"function": graph.name}
    if is_graph(graph):
        return {"graph": graph_to_dict(graph)}
    if isinstance(graph, dict):
        return {"by": [[key, to_data(value)] for key, value in graph.items()]}
    if isinstance(graph, list | tuple):
        return {"layers": [to_data(value) for value in graph]}
    if graph == OWN_MASKS:
        return graph
    return {"function": getattr(graph, "__name__", type(graph).__name__)}


def from_data(data: Any) -> Any:
    """The inverse of :func:`to_data`.

    Raises:
        LoaderError: If the data is of another kind, or a function, which is not saved.
    """
    if isinstance(data, dict):
        kind, value = next(iter(data.items()), ("", None))
    else:
        kind = ""
        value = None
    if data == OWN_MASKS:
        return OWN_MASKS
    if kind == "graph":
        return graph_from_dict(value)
    if kind == "layers" and isinstance(value, list):
        return [from_data(item) for item in value]
    if (
        kind == "by"
        and isinstance(value, list)
        and all(isinstance(item, list) and len(item) == 2 for item in value)
    ):
        return {key: from_data(item) for key, item in value}
    if kind == "function":
        raise LoaderError(
            f"the model was saved with the function {value}, which is not stored; pass "
            f"graph={value}"
        )
    raise LoaderError(f"config.{KEY} must hold graphs from ga.patch, got {str(data)[:80]}")


def saved_in(model: nn.Module) -> Any:
    """The graphs in a model's configuration."""
    data = getattr(model.config, KEY, None)
    if data is None:
        raise LoaderError(
            f"{type(model).__name__} was not saved with a graph; pass one: ga.patch(model, graph)"
        )
    return from_data(data)


def load_model(path: Any, options: dict[str, Any]) -> nn.Module:
    """The model in a folder without its patch, of the saved class."""
    try:
        import transformers
    except ImportError:
        raise need_extra("transformers", "hf") from None
    options = {"trust_remote_code": False} | options
    try:
        config = transformers.AutoConfig.from_pretrained(
            path, trust_remote_code=options["trust_remote_code"]
        )
    except (
        Exception
    ) as error:  # transformers' own checks of configurations raise many kinds of errors
        raise LoaderError(
            f"{path}: expected a folder that save_pretrained wrote: {str(error)[:800]}"
        ) from None
    names = config.architectures or [None]
    kind = getattr(transformers, names[0] or "AutoModel", None)
    if kind is None:
        raise LoaderError(
            f"{path}: transformers has no {names[0]}; load it yourself, then ga.patch(model, "
            "'saved')"
        )
    model: nn.Module = kind.from_pretrained(path, **options)
    return model

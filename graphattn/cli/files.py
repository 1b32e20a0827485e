"""A file as a graph: which builder takes what each kind of file gives."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import LoaderError, OptionError
from .loading import Item, Loaded, edge_list, take_edges, take_mask, take_mesh, take_points
from .names import ENDINGS
from .options import Option, options_of, parse
from .output import one_line, step
from .wording import in_words


@dataclass(frozen=True)
class Recipe:
    """How one kind of file becomes a graph."""

    kind: str
    gives: tuple[str, ...]  # parameters of builders that the file answers
    loader: Callable[..., Any]  # whose options can be typed, too
    take: Callable[[str, dict[str, Any]], Loaded]
    builders: dict[str, Callable[..., Any]]  # by the flag that asks for it; "" is the default

    def options(self, builder: Callable[..., Any]) -> tuple[Option, ...]:
        """Options of a builder and of the loader."""
        theirs = options_of(builder, (*self.gives, "name"))
        return theirs + options_of(self.loader, ("path", *(option.parameter for option in theirs)))


def recipes() -> dict[str, Recipe]:
    """One for each kind that ``sniff`` tells."""
    from ..graphs import BUILDERS
    from ..interop import files, from_mask

    near = {"--k": BUILDERS["knn"], "--radius": BUILDERS["radius"]}
    mesh = {"": BUILDERS["mesh_vertices"], "--faces": BUILDERS["mesh_faces"]}
    found = (
        Recipe("mesh", ("faces", "num_vertices"), files.load_mesh, take_mesh, mesh),
        Recipe("points", ("pos",), files.load_points, take_points, near),
        Recipe("edges", ("edge_index",), files.load_edges, take_edges, {"": edge_list}),
        Recipe("mask", ("mask",), files.load_mask, take_mask, {"": from_mask}),
    )
    return {recipe.kind: recipe for recipe in found}


def from_file(path: str, words: list[str], kind: str | None) -> Item:
    """The graph of a file.

    Raises:
        LoaderError: If the file cannot be read.
        OptionError: If the options do not fit what it holds.
    """
    from ..interop.files import sniff

    name, table = one_line(Path(path).name), recipes()
    guessed = ""
    if kind is None:
        with in_words({"max_bytes": "--max-bytes"}):
            kind = sniff(path)
        others = [other for other, endings in ENDINGS.items() if other != kind and Path(path).suffix in endings]
        guessed = f" ({name} was read as {kind}; --as {'|'.join(others)} overrides)" if others else ""
    asked = {word.partition("=")[0] for word in words}
    if kind == "mesh" and asked & set(table["points"].builders):
        kind = "points"  # the vertices alone
    recipe = table[kind]
    if kind == "points" and guessed:
        guessed += _maybe_a_mask(path)
    words, builder = _chosen(recipe, words, asked, name, guessed)
    options = recipe.options(builder)
    values = parse(words, options, name, guessed)
    known = inspect.signature(builder).parameters
    flags = {option.parameter: option.flags[0] for option in options}
    with in_words(flags, guessed if kind == "edges" else ""), step(f"reading {name}"):
        loaded = recipe.take(path, values)
    with in_words(flags), step(f"building the graph of {name}"):
        graph = builder(**{key: value for key, value in (loaded.given | values).items() if key in known})
    if graph.name != name:
        graph = replace(graph, name=f"{graph.name} of {name}")
    places = loaded.places if builder is not table["mesh"].builders["--faces"] else loaded.face_places
    queries = {} if values.get("queries") is None else {"queries": values["queries"]}
    return Item(path, graph, loaded.notes, {**places, **queries})


def _maybe_a_mask(path: str) -> str:
    """A hint for an array of floats that looks like a mask."""
    import numpy as np

    from ..interop.files import load_points

    try:
        table = load_points(path)
    except LoaderError:
        return ""
    square, flags = table.shape[0] == table.shape[1] > 3, bool(np.isin(table, (0, 1)).all())
    return "; a mask? Save array.astype(bool), and it is read as one" if square or flags else ""


def _chosen(
    recipe: Recipe, words: list[str], asked: set[str], name: str, guessed: str
) -> tuple[list[str], Callable[..., Any]]:
    """The builder that the flags ask for, and the words without a flag that does nothing else."""
    flags = [flag for flag in recipe.builders if flag in asked]
    if len(flags) > 1:
        raise OptionError(f"{name} takes one of {' and '.join(flags)}, got both")
    if not flags and "" not in recipe.builders:
        raise OptionError(f"{name} needs --k N (the nearest points) or --radius X (all within that distance){guessed}")
    builder = recipe.builders[flags[0] if flags else ""]
    if flags and not any(flags[0] in option.flags for option in recipe.options(builder)):
        words = [word for word in words if word != flags[0]]
    return words, builder

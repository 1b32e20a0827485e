"""Options that several commands have, and the forms of their WHAT."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Optional, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])
#: Types that a word of a command line is read as; of others the command reads the text.
_READ = (int, float, bool, StrEnum)


class Dtype(StrEnum):
    """Dtypes of attention."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


WHAT = """WHAT is one graph:

\b
  a name of the zoo           longformer
  an expression of builders   'sparse_strided(64, 8) | sinks(64, 4)'
  a file                      ball.off, karate.npz, mask.npy, graph.json

\b
graphattn zoo lists the names, graphattn builders the builders and their
arguments. An expression is written as in Python, in quotes for the shell:
  | & - @ ~                   join and turn over graphs
  .reverse() .k_hop(2)        and with_self_loops, without_self_loops,
                              with_global_tokens, subgraph, relabel
  load("scan.ply")            a file: positions for pos and queries, a mesh
                              for faces, a .npy array for ids and scores,
                              a graph where a graph belongs

\b
Files: a mesh (.off .obj .ply .stl .glb .gltf: its vertices), edges (.csv
.txt .tsv .edges .npz, .npy of integers (2, E)), a mask (.npy of bool (T, S)),
a saved graph (.json .safetensors). Points (.xyz .pts .txt .csv .npy .pcd .las
.laz, or a mesh) are a graph once knn or radius has made one. Options of a
file stand in load: header, weights, relabel, num_nodes, num_sources,
num_targets, duplicates of edges; columns, allow_nonfinite of points;
max_bytes.

\b
Examples:
  graphattn show 'window_partition((8, 12), (4, 4), shift=(2, 2))'
  graphattn show 'knn(load("ball.off"), k=6)' --out ball.png
  graphattn show 'mesh_vertices(load("ball.off"), hops=2)'
  graphattn facts 'load("karate.csv", header=True)'
"""


def number(text: str, least: float = 1, group: str | None = None) -> typer.models.OptionInfo:
    """An option that is a number of at least so much, in a group of ``--help``."""
    return typer.Option(min=least, metavar="N", help=text, rich_help_panel=group)


What = Annotated[
    str,
    typer.Argument(metavar="WHAT", help="A name of the zoo, an expression of builders, or a file."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show where an error comes from (or set GRAPHATTN_DEBUG=1).")
]
Picture = Annotated[
    Optional[str], typer.Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.")
]
Device = Annotated[str, typer.Option(help="Where they are: cpu, cuda, cuda:1; it must be here.")]


def with_options(load: Callable[[], type]) -> Callable[[F], F]:
    """A command that takes the fields of a dataclass, too; those that are given arrive by name.

    Args:
        load: Gives the dataclass, whose fields :func:`graphattn.io.fields.option` describes; called
            for this command alone, as its module may load torch.
    """

    def mark(command: F) -> F:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        command.load_options = load  # type: ignore[attr-defined]
        return command

    return mark


def add_options(command: TyperCommand) -> None:
    """Give a command the options of its dataclass, if it has one."""
    function: Any = inspect.unwrap(command.callback)  # type: ignore[arg-type]
    load = getattr(function, "load_options", None)
    if load is None:
        return
    options = load()
    hints = get_type_hints(options)
    # those of a class above are settings, which come last
    by_class = sorted(fields(options), key=lambda item: item.name not in options.__annotations__)
    added = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(item, hints[item.name]),
        )
        for item in by_class
        if item.metadata.get("group") is not None
    ]

    def complete(**values: Any) -> Any:
        for parameter in added:
            if values[parameter.name] is None:
                del values[parameter.name]
        return function(**values)

    signature = inspect.signature(function)
    complete.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    app = typer.Typer(add_completion=False)
    app.command()(complete)
    whole = typer.main.get_command(app)
    command.params = whole.params
    command.callback = whole.callback


def _annotation(item: Field[Any], hint: Any) -> Any:
    """The annotation of a parameter, as typer reads it, for a field of a dataclass."""
    kinds = [hint]
    if isinstance(hint, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    kind = kinds[0]
    if len(kinds) > 1 or not isinstance(kind, type) or not issubclass(kind, _READ):
        kind = str
    about = item.metadata
    name = item.name.replace("_", "-")
    flag = about["flag"] or f"--{name}"
    if kind is bool and item.default is None:
        flag = f"--{name}/--no-{name}"
    metavar = about["metavar"]
    if metavar is None and about["least"] is not None:
        metavar = "N"
    option = typer.Option(
        flag,
        min=about["least"],
        metavar=metavar,
        help=about["text"],
        rich_help_panel=about["group"] or None,
        show_default=type(item.default) in (int, float, str, Dtype) and str(item.default),
    )
    return Annotated[Optional[kind], option]

"""Options that several commands have, and the forms of their WHAT."""

from enum import StrEnum
from typing import Annotated, Optional

import typer


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

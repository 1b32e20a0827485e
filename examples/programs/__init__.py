"""Python programs as graphs over the nodes of their syntax trees: an example of typed relations of
your own.
"""

from .program_graphs import ProgramGraphs as ProgramGraphs
from .program_graphs import program_graphs as program_graphs

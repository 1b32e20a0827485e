"""Open expressions evaluated: their builders called with a size, or with positions."""

import inspect
import math
from typing import Any

from ..arguments import whole
from ..errors import GraphError
from .expression import Expression, built, function_of
from .graph import AttentionGraph
from .places import PLACES, Places


def leaves_open(call: Expression, names: tuple[str, ...]) -> bool:
    """True if ``...`` stands for one of these arguments, here or in an operand."""
    if call.args and call.args[0] is ...:
        return any(name in names for name in blanks_of(call))
    return any(leaves_open(child, names) for child in call.children() if isinstance(child, Expression))


def blanks_of(call: Expression) -> list[str]:
    """The arguments that ``...`` stands for."""
    names = list(inspect.signature(function_of(call.function)).parameters)
    return [name for name, value in zip(names, call.args, strict=False) if value is ...]


class OfSize:
    """Evaluation of a pattern at a size."""

    def __init__(self, size: Any, num_sources: Any) -> None:
        self.size, self.num_sources = size, num_sources

    def build(self, call: Expression) -> AttentionGraph:
        size, num_sources = self.size, self.num_sources
        blanks = blanks_of(call)
        rest, options = map(built, call.args[len(blanks) :]), _options(call)
        on_grid, build = "size" in blanks, function_of(call.function)
        if not set(blanks).isdisjoint(PLACES):
            raise GraphError(
                f"{call} needs {' and '.join(blanks)}, and got a size; make the graph first: "
                f"recipe({'pos, batch' if 'pos' in blanks else 'faces=faces'})"
            )
        if on_grid and isinstance(size, int):
            raise GraphError(
                f"{call} needs the axes of a grid, and got {size} nodes; call the pattern with its axes first: "
                "pattern((height, width))"
            )
        if isinstance(size, tuple) and not size:
            raise GraphError(f"{call}: size must name at least one axis, such as (height, width), got ()")
        if not on_grid and isinstance(size, tuple):
            size = math.prod(whole(length, "size", 0, GraphError) for length in size)
        if len(blanks) == 2:
            return build(size, size if num_sources is None else num_sources, *rest, **options)
        made: AttentionGraph = build(size, *rest, **options)
        if num_sources not in (None, made.num_sources):
            raise GraphError(f"{call} of {size} targets has {made.num_sources} sources, expected {num_sources}")
        return made

    def with_tokens(self, call: Expression) -> "OfSize":
        """Evaluation of the operand of ``with_global_tokens``: a size counts the new nodes, too."""
        size, num_sources = self.size, self.num_sources
        number = call.args[1] if len(call.args) > 1 else call.options.get("number", 1)
        if not isinstance(size, int):
            return self
        if size < number or num_sources not in (None, size):
            sides = size if num_sources is None else (size, num_sources)
            raise GraphError(f"{call} needs a size of at least {number}, its global tokens, got {sides}")
        return OfSize(size - number, None)

    def complement(self, graph: AttentionGraph) -> AttentionGraph:
        return ~graph


class OfPlaces:
    """Evaluation of a pattern at positions, or at the sizes of the clouds."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def build(self, call: Expression) -> AttentionGraph:
        blanks = blanks_of(call)
        if not set(blanks).isdisjoint(PLACES):
            rest, options = list(map(built, call.args[len(blanks) :])), _options(call)
            return self.places.build(function_of(call.function), blanks, rest, options, str(call))
        return self.places.joined(lambda targets, sources: OfSize(targets, sources).build(call))

    def with_tokens(self, call: Expression) -> "OfPlaces":
        if self.places.batch is not None:
            raise GraphError(f"{call} would join the clouds of a batch; disjoint_union joins graphs of one cloud each")
        return self

    def complement(self, graph: AttentionGraph) -> AttentionGraph:
        """The complement within each cloud."""
        if self.places.batch is None:
            return ~graph
        return ~graph & self.places.joined(function_of("cross"))


def filled(part: Any, at: OfSize | OfPlaces) -> Any:
    """An argument with its open expressions evaluated; everything else as it is."""
    if not isinstance(part, Expression) or not part.is_open:
        return built(part)
    if part.args[0] is ...:
        return at.build(part)
    if part.function == "with_global_tokens":
        at = at.with_tokens(part)
    args = [filled(arg, at) for arg in part.args]
    return at.complement(args[0]) if part.function == "~" else function_of(part.function)(*args, **_options(part))


def _options(call: Expression) -> dict[str, Any]:
    return {name: built(value) for name, value in call.options.items()}

"""A warning where edges from later tokens are joined to a graph that was asked to be causal."""

from typing import Any

from ..errors import warn
from .deferred.expression import Expression

_MOST_ROWS = 1 << 18  # of a graph whose rows are looked at: some 0.1 s


def warn_of_later_sources(causal: Any, other: Any) -> None:
    """Warn if ``causal`` was asked to be causal, and is, and ``other`` is not.

    A graph is asked to be causal by ``causal=True`` or ``causal(...)`` in its expression. Graphs of
    more than 2**18 targets are not looked at.

    Args:
        causal: An AttentionGraph.
        other: One that is joined to it, or what has become of it.
    """
    if causal.num_targets > _MOST_ROWS or not _is_asked(causal.expression):
        return
    if other.is_causal or not causal.is_causal:
        return
    warn(
        f"{causal.name} is causal and {other.name} is not, so that targets read later sources; a "
        "decoder needs a | (b & graphattn.graphs.causal(N)), an encoder causal=False"
    )


def _is_asked(expression: Expression | None) -> bool:
    if expression is None:
        return False
    if expression.function == "causal" or expression.options.get("causal") is True:
        return True
    return any(map(_is_asked, expression.calls()))

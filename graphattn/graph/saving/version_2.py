"""Calls of builders as files of version 2 have them, in today's words."""

from typing import Any

#: Builders whose ``causal`` had a default, with it.
_CAUSAL = {
    "sliding_window": True,
    "lsh_buckets": True,
    "block_local": False,
    "documents": False,
    "grid_neighbourhood": False,
    "hierarchical": False,
}


def of_today(function: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The function and the keyword arguments of a call, with what was a default then.

    Example:
        >>> of_today("sliding_window", {"dilation": 2})
        ('sliding_window', {'causal': True, 'dilation': 2})
    """
    if function in _CAUSAL:
        options = {"causal": _CAUSAL[function], **options}
    return function, options

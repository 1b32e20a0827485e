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
_SIDES = ("num_targets", "left", "right")  # arguments of asymmetric_window
_NAMES = {
    "asymmetric_window": "sliding_window",
    "fixed": "sparse_fixed",
    "hierarchical": "coarse_to_fine",
    "offset": "shifted",
    "random_sources": "random_neighbours",
    "ranked": "causal_by_rank",
    "relabelled": "reordered",
    "strided": "sparse_strided",
}


def of_today(
    function: str, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The function and the arguments of a call, with what was a default then.

    Example:
        >>> of_today("sliding_window", (..., 3), {"dilation": 2})
        ('sliding_window', (Ellipsis, 3), {'causal': True, 'dilation': 2})
        >>> of_today("asymmetric_window", (9, 2, 1), {})
        ('sliding_window', (9, (2, 1)), {})
    """
    if function in _CAUSAL:
        options = {"causal": _CAUSAL[function], **options}
    if function == "asymmetric_window":
        sides = {**dict(zip(_SIDES, args, strict=False)), **options}
        if not sides.keys() >= set(_SIDES):
            return function, args, options  # which today's reader refuses
        size, left, right = (sides.pop(name) for name in _SIDES)
        args = (size, (left, right))
        options = sides
    if "include_self" in options:
        options = {**options, "self_loops": options["include_self"]}
        del options["include_self"]
    return _NAMES.get(function, function), args, options

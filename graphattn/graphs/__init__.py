"""The catalogue of builders, a package per family; each checks its arguments."""

from typing import Any

from ..graph.deferred.expression import builders as _builders
from ..lazy import attach_stub as _attach_stub

_FAMILIES = ("sequence", "grid", "points", "mesh", "network")
_load, __dir__, __all__ = _attach_stub(__name__, __file__)
__all__ += ["BUILDERS"]


def __getattr__(name: str) -> Any:
    if name == "BUILDERS":
        # every builder of a family by name, in the order of the catalogue
        functions = {name: _load(name) for name in __all__ if name != "BUILDERS"}
        globals()[name] = {
            name: function
            for name, function in functions.items()
            if name in _builders() and function.__module__.split(".")[2] in _FAMILIES
        }
        return globals()[name]
    return _load(name)

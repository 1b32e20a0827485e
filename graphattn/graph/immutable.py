"""Objects that never change: a copy is the object itself."""

from typing import Any, Self


class Immutable:
    """An object that is its own copy."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

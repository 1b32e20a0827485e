"""Trees, programs, networks, and graphs made of other graphs."""

__all__: list[str] = []

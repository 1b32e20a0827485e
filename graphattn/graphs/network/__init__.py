"""Trees, programs, networks, and graphs made of other graphs."""

from .trees import ancestors, siblings, tree

__all__ = ["tree", "ancestors", "siblings"]

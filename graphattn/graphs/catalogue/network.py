"""Named patterns: network."""

from .pattern import Named

NAMED: tuple[Named, ...] = ()

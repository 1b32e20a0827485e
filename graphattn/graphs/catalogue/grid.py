"""Named patterns: grid."""

from .pattern import Named

NAMED: tuple[Named, ...] = (
    Named("Swin", "grid", "square cells of an image", "cell_partition((8, 8), (4, 4))", "Liu 2021"),
)

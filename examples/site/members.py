"""Members of classes as the reference shows them: without internals, and types only where one is."""

import re

#: What other modules of the package call, and users have no use for.
INTERNAL = (
    "as_operand", "as_run", "at_edges", "at_rows", "at_step", "attend", "graph_by_graph", "made_by",
    "need_no_images", "of_whole", "on_union", "rows_of_union", "side_by_side", "with_union",
)  # fmt: skip
#: A property's first line may begin with its type, such as "int64 (E,): ".
_TYPE = re.compile(r"(bool|u?int|float)\d*\b")


def of_property(docstring: str) -> str:
    """The docstring of a property as Napoleon is to read it.

    It takes what stands before a colon in the first line for the type: an empty one here, unless
    it is a type.
    """
    first = docstring.partition("\n")[0]
    if ": " not in first or _TYPE.match(first):
        return docstring
    return f": {docstring}"

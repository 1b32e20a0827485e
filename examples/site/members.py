"""Members of classes as the reference shows them: without internals, and types only where one is."""

import re

#: What other modules of the package call, and users have no use for.
INTERNAL = ("attend", "side_by_side")
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

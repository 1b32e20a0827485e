"""Numbers of things in words."""


def counted(number: int, noun: str, several: str = "") -> str:
    """A number with its noun, in the plural unless it is one.

    Args:
        number: How many.
        noun: In the singular.
        several: In the plural, where that is not the noun with an "s" or an "es".

    Example:
        >>> counted(1, "edge"), counted(2000, "class"), counted(0, "vertex", "vertices")
        ('1 edge', '2,000 classes', '0 vertices')
    """
    if number == 1:
        return f"1 {noun}"
    ending = "s"
    if noun.endswith("s"):
        ending = "es"
    return f"{number:,} {several or noun + ending}"

"""The compiled loop of colour refinement."""

import numpy as np

from ..compiled import compiled

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

_30 = np.uint64(30)
_27 = np.uint64(27)
_31 = np.uint64(31)


@compiled
def mixed(x: np.uint64) -> np.uint64:
    """A hash, as :func:`graphattn.laws.colours.mixed` has it: the finaliser of splitmix64."""
    x = x + STEP
    x = (x ^ (x >> _30)) * FIRST
    x = (x ^ (x >> _27)) * SECOND
    return x ^ (x >> _31)


@compiled
def of_rows(values: np.ndarray) -> np.ndarray:
    """A hash of each row of unsigned integers (R, F)."""
    result = np.zeros(len(values), np.uint64)
    for row in range(len(values)):
        code = np.uint64(0)
        for value in values[row]:
            code = mixed(code + np.uint64(value))
        result[row] = code
    return result


@compiled
def refined(
    colours: np.ndarray,
    source: np.ndarray,
    starts: np.ndarray,
    classes: np.ndarray,
    shares: np.ndarray,
) -> np.ndarray:
    """Each node's colour with that of what it reads: sums of hashes, in shares of their number.

    Args:
        colours: uint64 (S, N), of the nodes of samples.
        source: int64 (E,), of edges ordered by target.
        starts: int64 (N + 1,), where the edges of each target start.
        classes: int64 (S, E), or (1, E) of all samples.
        shares: uint64 (N,), what a sum over the edges of each target is multiplied by.
    """
    result = np.empty_like(colours)
    for s in range(len(colours)):
        of_nodes = colours[s]
        of_edges = classes[min(s, len(classes) - 1)]
        for t in range(len(shares)):
            by_class = np.uint64(0)
            by_colour = np.uint64(0)
            joint = np.uint64(0)
            # two sums of each kind, as shares drop bits
            by_colour_again = np.uint64(0)
            by_message = np.uint64(0)
            by_message_again = np.uint64(0)
            for e in range(starts[t], starts[t + 1]):
                colour = mixed(of_nodes[source[e]])
                of_class = mixed(np.uint64(of_edges[e]))
                message = mixed(colour + of_class)
                by_class += of_class
                by_colour += colour
                joint += of_class * colour
                by_colour_again += mixed(colour)
                by_message += message
                by_message_again += mixed(message)
            count = np.uint64(starts[t + 1] - starts[t])
            if count * joint == by_class * by_colour:  # classes are independent of colours
                of_sources = mixed(by_colour * shares[t]) + by_colour_again * shares[t]
            else:
                of_sources = mixed(by_message * shares[t]) + by_message_again * shares[t] + STEP
            result[s, t] = mixed(mixed(of_nodes[t]) + mixed(of_sources))
    return result

"""Compiled loops of swaps that keep what nodes depend on: reach as rows of bits."""

from typing import NamedTuple

import numpy as np

from ...compiled import compiled

_BITS = 64


@compiled
def _bit_count(word: np.uint64) -> np.int64:
    """The number of bits that are set."""
    x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _has(rows: np.ndarray, row: int, column: int) -> bool:
    """True if a bit is set."""
    word = rows[row, column // _BITS] >> np.uint64(column % _BITS)
    return (word & np.uint64(1)) != np.uint64(0)


@compiled
def _row_of(
    ptr: np.ndarray,
    source: np.ndarray,
    reach: np.ndarray,
    layer: int,
    t: int,
    row: np.ndarray,
) -> int:
    """Write the nodes that node t depends on after a layer into ``row``; their number."""
    count = 0
    for w in range(reach.shape[2]):
        word = reach[layer - 1, t, w]
        for k in range(ptr[t], ptr[t + 1]):
            word |= reach[layer - 1, source[k], w]
        row[w] = word
        count += _bit_count(word)
    return count


@compiled
def reach_of(ptr: np.ndarray, source: np.ndarray, layers: int) -> np.ndarray:
    """uint64 (layers + 1, N, words): the nodes that every node depends on after each layer."""
    nodes = len(ptr) - 1
    reach = np.zeros((layers + 1, nodes, (nodes + _BITS - 1) // _BITS), np.uint64)
    for t in range(nodes):
        reach[0, t, t // _BITS] = np.uint64(1) << np.uint64(t % _BITS)
    for layer in range(1, layers + 1):
        for t in range(nodes):
            _row_of(ptr, source, reach, layer, t, reach[layer, t])
    return reach


@compiled
def total_of(reach: np.ndarray) -> int:
    """The number of pairs after the last layer."""
    total = 0
    for t in range(reach.shape[1]):
        for w in range(reach.shape[2]):
            total += _bit_count(reach[-1, t, w])
    return total


@compiled
def _replace(
    source: np.ndarray,
    first: int,
    last: int,
    old: int,
    new: int,
) -> None:
    """Replace one entry of a row by another."""
    for k in range(first, last):
        if source[k] == old:
            source[k] = new
            return


@compiled
def _edge(
    target: np.ndarray,
    source: np.ndarray,
    random: np.random.Generator,
) -> tuple[int, int]:
    """Target and source of any edge."""
    k = random.integers(0, len(source))
    return target[k], source[k]


@compiled
def _member(
    ptr: np.ndarray,
    member: np.ndarray,
    row: int,
    random: np.random.Generator,
) -> int:
    """Any member of a row that has some."""
    return member[ptr[row] + random.integers(0, ptr[row + 1] - ptr[row])]


@compiled
def _swap(
    ptr: np.ndarray,
    source: np.ndarray,
    reader_ptr: np.ndarray,
    reader: np.ndarray,
    a: int,
    b: int,
    c: int,
    d: int,
) -> None:
    """Put ``a <- d, c <- b`` in place of ``a <- b, c <- d``, by target and by source."""
    _replace(source, ptr[a], ptr[a + 1], b, d)
    _replace(source, ptr[c], ptr[c + 1], d, b)
    _replace(reader, reader_ptr[b], reader_ptr[b + 1], a, c)
    _replace(reader, reader_ptr[d], reader_ptr[d + 1], c, a)


@compiled
def _mark(t: int, marked: np.ndarray, due: np.ndarray, num_due: int) -> int:
    """Add a row that is not marked to those that are due; their number."""
    if marked[t]:
        return num_due
    marked[t] = True
    due[num_due] = t
    return num_due + 1


class Ends(NamedTuple):
    """A graph without self-loops, by target and by source, int64.

    ``ptr``, ``source`` and ``reader_ptr``, ``reader`` are its rows; ``target`` is that of each entry
    of ``source``.
    """

    ptr: np.ndarray
    source: np.ndarray
    reader_ptr: np.ndarray
    reader: np.ndarray
    target: np.ndarray


class Cooling(NamedTuple):
    """How long swaps go on, and what they are to reach.

    It ends within ``tolerance`` of ``goal`` pairs of nodes that depend on each other through
    ``layers``. It cools from ``heat`` with the ``tries`` made, or with the words of bits read of the
    ``most_words`` that may be, whichever are sooner over: then it ends. ``closing`` is the share of
    swaps that may close a triangle.
    """

    layers: int
    goal: int
    tolerance: int
    tries: int
    most_words: int
    heat: float
    closing: float


@compiled
def anneal(
    edges: Ends,
    cooling: Cooling,
    symmetric: bool,
    causal: bool,
    random: np.random.Generator,
) -> tuple[int, int]:
    """Swap edges, in place; the numbers of pairs that depend on each other, and of words read.

    A swap that comes nearer is taken, another with a probability that falls with its distance and
    with time (simulated annealing).
    """
    ptr, source, reader_ptr, reader, target = edges
    layers, goal, tolerance, tries, most_words, heat, closing = cooling
    nodes = len(ptr) - 1
    reach = reach_of(ptr, source, layers)
    words = reach.shape[2]
    total = total_of(reach)
    direct = reach[1]  # a node and its sources
    rows = np.empty(nodes, np.int64)
    marked = np.zeros(nodes, np.bool_)
    log_at = np.empty((layers * nodes, 2), np.int64)
    log = np.empty((layers * nodes, words), np.uint64)
    row = np.empty(words, np.uint64)
    due = np.empty(nodes, np.int64)
    number = 0
    words_read = 0
    while number < tries and words_read < most_words and abs(total - goal) > tolerance:
        temperature = heat * (1 - max(number / tries, words_read / most_words))
        number += 1
        a, b = _edge(target, source, random)
        c, d = _edge(target, source, random)
        if random.random() < closing:
            # d is a source of a source of a, so that the swap may close a triangle
            k = _member(ptr, source, a, random)
            if ptr[k] == ptr[k + 1]:
                continue
            d = _member(ptr, source, k, random)
            c = _member(reader_ptr, reader, d, random)
        if a in (c, d) or b in (c, d):
            continue
        if _has(direct, a, d) or _has(direct, c, b):
            continue
        if causal and (d > a or b > c):
            continue
        _swap(ptr, source, reader_ptr, reader, a, b, c, d)
        if symmetric:
            _swap(ptr, source, reader_ptr, reader, b, a, d, c)
        touched = (a, c, b, d)
        of_swap = 2
        if symmetric:
            of_swap = 4
        logged = 0
        before = total
        count = 0  # rows that the layer below changed
        for layer in range(1, layers + 1):
            # rows of the swap, and readers of what changed
            num_due = 0
            for k in range(of_swap):
                num_due = _mark(touched[k], marked, due, num_due)
            for i in range(count):
                s = rows[i]
                num_due = _mark(s, marked, due, num_due)
                for k in range(reader_ptr[s], reader_ptr[s + 1]):
                    num_due = _mark(reader[k], marked, due, num_due)
            count = 0
            for i in range(num_due):
                t = due[i]
                marked[t] = False
                size = _row_of(ptr, source, reach, layer, t, row)
                words_read += words * (1 + ptr[t + 1] - ptr[t])
                same = True
                old = 0
                for w in range(words):
                    same &= row[w] == reach[layer, t, w]
                    old += _bit_count(reach[layer, t, w])
                if same:
                    continue
                log_at[logged, 0] = layer
                log_at[logged, 1] = t
                log[logged] = reach[layer, t]
                logged += 1
                reach[layer, t] = row
                rows[count] = t
                count += 1
                if layer == layers:
                    total += size - old
        worse = abs(total - goal) - abs(before - goal)
        if worse <= 0 or random.random() < np.exp(-worse / max(temperature, 1e-9)):
            continue
        total = before
        for i in range(logged):
            reach[log_at[i, 0], log_at[i, 1]] = log[i]
        _swap(ptr, source, reader_ptr, reader, a, d, c, b)
        if symmetric:
            _swap(ptr, source, reader_ptr, reader, b, c, d, a)
    return total, words_read

"""Compiled loops of curvature: 4-cycles, and optimal transport between neighbourhoods."""

import numpy as np

from ...compiled import compiled

_NOTHING = 1e-12  # mass that counts as none


@compiled
def balanced_forman(
    ptr: np.ndarray, index: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """The curvature of edges ``first[e] - second[e]`` of a simple graph in CSR form.

    The neighbours of node ``i`` are ``index[ptr[i] : ptr[i + 1]]``.
    """
    curvature = np.zeros(len(first))
    of_i = np.zeros(len(ptr) - 1, np.bool_)
    of_j = np.zeros(len(ptr) - 1, np.bool_)
    for e in range(len(first)):
        i = first[e]
        j = second[e]
        d_i = ptr[i + 1] - ptr[i]
        d_j = ptr[j + 1] - ptr[j]
        if min(d_i, d_j) == 1:
            continue
        for k in index[ptr[i] : ptr[i + 1]]:
            of_i[k] = True
        for k in index[ptr[j] : ptr[j + 1]]:
            of_j[k] = True
        triangles = 0
        for k in index[ptr[i] : ptr[i + 1]]:
            triangles += of_j[k]
        squares, most = _squares(ptr, index, i, j, of_i, of_j)
        more, most_of_j = _squares(ptr, index, j, i, of_j, of_i)
        most = max(most, most_of_j)
        least = min(d_i, d_j)
        largest = max(d_i, d_j)
        curvature[e] = 2 / d_i + 2 / d_j - 2 + 2 * triangles / largest + triangles / least
        if most:
            curvature[e] += (squares + more) / (most * largest)
        for k in index[ptr[i] : ptr[i + 1]]:
            of_i[k] = False
        for k in index[ptr[j] : ptr[j + 1]]:
            of_j[k] = False
    return curvature


@compiled
def _squares(
    ptr: np.ndarray, index: np.ndarray, i: int, j: int, of_i: np.ndarray, of_j: np.ndarray
) -> tuple[int, int]:
    """Neighbours of i alone on a 4-cycle of i - j, and the most such cycles through one.

    The cycles have no diagonals.
    """
    number = 0
    most = 0
    for k in index[ptr[i] : ptr[i + 1]]:
        if k == j or of_j[k]:
            continue
        cycles = 0
        for w in index[ptr[k] : ptr[k + 1]]:
            cycles += of_j[w] and not of_i[w] and w != i
        number += cycles > 0
        most = max(most, cycles)
    return number, most


@compiled
def ollivier_ricci(
    ptr: np.ndarray, index: np.ndarray, first: np.ndarray, second: np.ndarray, alpha: float
) -> np.ndarray:
    """Curvature of edges: 1 less the cost of moving the walk of one end to that of the other."""
    curvature = np.zeros(len(first))
    size = len(ptr) - 1
    mass = np.zeros(size)
    near = np.zeros(size, np.bool_)
    for e in range(len(first)):
        i = first[e]
        j = second[e]
        d_i = ptr[i + 1] - ptr[i]
        d_j = ptr[j + 1] - ptr[j]
        for k in index[ptr[i] : ptr[i + 1]]:
            mass[k] += (1 - alpha) / d_i
        for k in index[ptr[j] : ptr[j + 1]]:
            mass[k] -= (1 - alpha) / d_j
        mass[i] += alpha
        mass[j] -= alpha
        # What both have stays where it is: distances obey the triangle inequality. i is a neighbour
        # of j.
        nodes = np.empty((2, d_i + d_j), np.int64)  # those with more, and those with less
        amount = np.empty((2, d_i + d_j))
        count = np.zeros(2, np.int64)
        for end in (i, j):
            for k in index[ptr[end] : ptr[end + 1]]:
                if abs(mass[k]) > _NOTHING:
                    if mass[k] > 0:
                        side = 0
                    else:
                        side = 1
                    nodes[side, count[side]] = k
                    amount[side, count[side]] = abs(mass[k])
                    count[side] += 1
                mass[k] = 0.0
        givers = nodes[0, : count[0]]
        takers = nodes[1, : count[1]]
        distance = _distances(ptr, index, givers, takers, near)
        curvature[e] = 1 - _transport(amount[0, : count[0]], amount[1, : count[1]], distance)
    return curvature


@compiled
def _distances(
    ptr: np.ndarray, index: np.ndarray, givers: np.ndarray, takers: np.ndarray, near: np.ndarray
) -> np.ndarray:
    """Between neighbours of two nodes that are neighbours: 1, 2 or 3 edges."""
    distance = np.full((len(givers), len(takers)), 3.0)
    for row, k in enumerate(givers):
        for x in index[ptr[k] : ptr[k + 1]]:
            near[x] = True
        for column, w in enumerate(takers):
            if near[w]:
                distance[row, column] = 1.0
                continue
            for x in index[ptr[w] : ptr[w + 1]]:
                if near[x]:
                    distance[row, column] = 2.0
                    break
        for x in index[ptr[k] : ptr[k + 1]]:
            near[x] = False
    return distance


@compiled
def _transport(supply: np.ndarray, demand: np.ndarray, distance: np.ndarray) -> float:
    """Exact least cost of moving supply to demand, by shortest augmenting paths (Dijkstra)."""
    n, m = distance.shape
    flow = np.zeros((n, m))
    potential = np.zeros(n + m)
    length = np.empty(n + m)
    before = np.empty(n + m, np.int64)
    done = np.empty(n + m, np.bool_)
    cost = 0.0
    while True:
        supplied = False
        for node in range(n + m):
            before[node] = -1
            done[node] = False
            length[node] = np.inf
            if node < n and supply[node] > _NOTHING:
                length[node] = 0.0
                supplied = True
        end = -1
        while supplied:
            here = -1
            best = np.inf
            for node in range(n + m):
                if not done[node] and length[node] < best:
                    here = node
                    best = length[node]
            if here < 0:
                break
            done[here] = True
            if here >= n and demand[here - n] > _NOTHING:
                end = here
                break
            for other in range(m if here < n else n):
                if here < n:
                    node = other + n
                else:
                    node = other
                if done[node] or (here >= n and flow[other, here - n] <= _NOTHING):
                    continue
                if here < n:
                    step = distance[here, other]
                else:
                    step = -distance[other, here - n]
                far = best + max(0.0, step + potential[here] - potential[node])
                if far < length[node]:
                    length[node] = far
                    before[node] = here
        if end < 0:
            return cost
        for node in range(n + m):
            potential[node] += min(length[node], length[end])
        amount = demand[end - n]
        start = end
        while before[start] >= 0:
            if start < n:
                amount = min(amount, flow[start, before[start] - n])
            start = before[start]
        amount = min(amount, supply[start])
        supply[start] -= amount
        demand[end - n] -= amount
        node = end
        while node != start:
            previous = before[node]
            if node >= n:
                flow[previous, node - n] += amount
                cost += amount * distance[previous, node - n]
            else:
                flow[node, previous - n] -= amount
                cost -= amount * distance[node, previous - n]
            node = previous

"""Programs as graphs: tree relations against ast, scopes against symtable, data flow against
running programs.
"""

import ast
import random
import symtable
import textwrap
import tokenize
from io import StringIO
from pathlib import Path

import pytest
import torch
from programs import program_graphs, scopes

import graphattn as ga
from graphattn.errors import GraphError

OWN = Path(scopes.__file__).read_text("utf-8")


def pairs(graph):
    return {(int(t), int(s)) for s, t in graph.edge_index.t()}


def flow(source, relation):
    """Edges as (label and line of the target, line of the source)."""
    source = textwrap.dedent(source).strip()
    found = program_graphs(source)
    nodes = depth_first(ast.parse(source))
    assert len(nodes) == len(found.labels)
    edges = pairs(found.relations[relation])
    return sorted((found.labels[t], nodes[t].lineno, nodes[s].lineno) for t, s in edges)


def depth_first(node):
    below = [
        child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)
    ]
    return [node, *(found for child in below for found in depth_first(child))]


def test_tree_relations_are_those_of_ast():
    found = program_graphs(OWN)
    nodes = depth_first(ast.parse(OWN))
    assert [label.split()[0] for label in found.labels] == [type(node).__name__ for node in nodes]
    up, beside, number = set(), set(), iter(range(1, len(nodes)))

    def go_down(node, here):
        before = None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr_context):
                continue
            below = next(number)
            up.add((below, here))
            if before is not None:
                beside.add((before, below))
            before = below
            go_down(child, below)

    go_down(ast.parse(OWN), 0)
    relations = found.relations
    assert pairs(relations["parent"]) == up == pairs(relations["child"].reverse())
    assert (
        pairs(relations["next_sibling"]) == beside == pairs(relations["previous_sibling"].reverse())
    )
    assert ga.graphs.tree(found.parent).equals(relations["parent"] | relations["child"])
    assert found.typed.num_relations == 8
    assert sum(found.typed.count().values()) == found.typed.graph.num_edges
    assert "8 nodes" in repr(program_graphs("x = 1\nprint(x)"))


def test_leaves_follow_each_other_as_names_and_constants_in_the_text():
    source = "def f(a, b=2):\n    return [a * c + 'd' for c in (b, 3)]\nprint(f(1)[0] < g)"
    found = program_graphs(source)
    after = dict(pairs(found.relations["next_token"]))
    (first,) = set(after) - set(after.values())
    chain = [first]
    while chain[-1] in after:
        chain.append(after[chain[-1]])
    written = [found.labels[node].split()[1] for node in chain]
    tokens = [
        token.string.strip("'") for token in tokenize.generate_tokens(StringIO(source).readline)
    ]
    keywords = {"def", "f", "return", "for", "in", "print"}
    wanted = [token for token in tokens if token.isalnum() and token not in keywords]
    assert [word for word in written if word not in keywords] == wanted
    assert pairs(found.relations["previous_token"]) == {
        (b, a) for a, b in pairs(found.relations["next_token"])
    }


@pytest.mark.parametrize("seed", range(5))
def test_definitions_and_uses_of_straight_programs_are_those_of_a_run(seed):
    """Lines ``v1 = v2 + v3``, ``v1 += v2``: a loop over the lines knows who wrote last."""
    chance = random.Random(seed)
    lines, wrote, touched, definition, last = [], {}, {}, set(), set()
    for line in range(1, 60):
        target, *used = chance.choices("abcdef", k=3)
        grows = chance.random() < 0.3
        lines.append(f"{target} += {used[0]}" if grows else f"{target} = {used[0]} + {used[1]}")
        events = [(target, 0), (used[0], 1)] if grows else [(used[0], 1), (used[1], 2)]
        for name, place in [*events, (target, 0)]:
            if touched.get(name, (line, place)) != (line, place):
                last.add(((line, place), touched[name]))
            touched[name] = (line, place)
        definition |= {((line, place), wrote[name]) for name, place in events if name in wrote}
        wrote[target] = (line, 0)
    source = "\n".join(lines)
    found, nodes = program_graphs(source), depth_first(ast.parse(source))
    place = {}
    for node, number in zip(nodes, range(len(nodes)), strict=True):
        if isinstance(node, ast.Name):
            place[number] = (node.lineno, sum(line == node.lineno for line, _ in place.values()))
    for name, wanted in (("definition", definition), ("last_use", last)):
        assert {(place[t], place[s]) for t, s in pairs(found.relations[name])} == wanted


def test_variables_belong_to_their_scopes():
    assert flow(
        """
        x = 1
        def f(y, z=x):
            x = y
            return x + z
        class C:
            x = f
            def g(self):
                return x, self
        print(x, [x for x in (x, 2)])
        """,
        "definition",
    ) == sorted(
        [
            ("Name x", 2, 1),
            ("Name y", 3, 2),
            ("Name x", 4, 3),
            ("Name z", 4, 2),
            ("Name f", 6, 2),
            ("Name x", 8, 1),
            ("Name self", 8, 7),
            ("Name x", 9, 1),
            ("Name x", 9, 1),
            ("Name x", 9, 9),
        ]
    )
    assert flow(
        """
        n = 0
        def count():
            global n
            n += 1
            def deeper():
                nonlocal m
                m = n
            m = 2
            return m
        import os.path, sys as s
        print(n, s, os)
        """,
        "definition",
    ) == sorted(
        [
            ("Name n", 4, 1),
            ("Name n", 7, 4),
            ("Name m", 9, 8),
            ("Name n", 11, 4),
            ("Name s", 11, 10),
            ("Name os", 11, 10),
        ]
    )
    assert flow(
        "for i in range(3):\n    if (k := i):\n        pass\nprint(i, k)", "definition"
    ) == sorted([("Name i", 2, 1), ("Name i", 4, 1), ("Name k", 4, 2)])
    assert flow(
        "try:\n    pass\nexcept E as e:\n    e\nwith a as b:\n    b\nx: int\nx", "definition"
    ) == [
        ("Name b", 6, 5),
        ("Name e", 4, 3),
    ]


def test_bound_names_are_those_of_symtable():
    """On the source of scopes.py itself: every function's local variables."""
    module = ast.parse(OWN)
    found = {}
    for each in scopes.occurrences(module):
        owner = each.scope.owner(each.name)
        if owner.kind == "function":
            found.setdefault(id(owner), set()).add(each.name)

    def local(table):
        if table.get_type() == "function" and table.get_name() not in (
            "genexpr",
            "listcomp",
            "lambda",
        ):
            yield {s.get_name() for s in table.get_symbols() if s.is_local()}
        for below in table.get_children():
            yield from local(below)

    wanted = [names for names in local(symtable.symtable(OWN, "scopes.py", "exec")) if names]
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, wanted))


def test_programs_that_are_odd():
    empty = program_graphs("")
    assert empty.labels == ("Module",)
    assert all(graph.num_edges == 0 and graph.num_nodes == 1 for graph in empty.relations.values())
    match = (
        "match a:\n    case [b, *c] | {'k': b, **c}:\n        print(b, c)\n    case d:\n        d"
    )
    assert ("Name b", 3, 2) in flow(match, "definition")
    assert ("Name d", 5, 4) in flow(match, "definition")
    assert flow("f = lambda x, *y, z=3, **w: (x, y, z, w)", "definition") == [
        (f"Name {name}", 1, 1) for name in "wxyz"
    ]
    long = program_graphs("x = 0\n" * 3000)
    assert long.relations["last_use"].num_edges == 2999
    for bad, words in (("x = = 1", "line 1"), ("a\nb c", "line 2"), (3, "text of a Python module")):
        with pytest.raises(GraphError, match=words):
            program_graphs(bad)
    assert torch.equal(long.parent[:1], torch.tensor([-1]))

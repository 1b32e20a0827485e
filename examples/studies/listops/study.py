"""ListOps: nested lists read along their tree, near by, or all at once.

*Question.* The value of an expression is made along its tree. Does a model that reads along that
tree need no positions, and how far is one that reads near tokens, or all of them, and has to find
the tree by itself?

*Data.* Expressions of the grammar of ListOps (Nangia and Bowman 2018) as Long Range Arena has it:
MIN, MAX, MED and SM (the sum modulo 10) of 2 to 5 arguments, each a digit or an expression, a
quarter of them; 3 deep at most, 6 to 28 tokens, a closing bracket for each operator. 5,000
expressions, 1,000 held out, drawn anew by each seed. A target is the value, 0 to 9; it is read out
at the first token, the outermost operator.

*Arms.* The tree: an operator and its arguments (an argument that is an expression is its operator)
read each other, a closing bracket and its operator, and each itself. A window of 7 tokens around
each. Self, full and random graphs of the same in-degrees by themselves.

*Model and training.* Four layers of width 32, 4 heads; AdamW, one cycle up to 3e-3, 800 batches of
32. Without positions, and with relative ones.

*Predicted before training.* Tree > full > window: a window of 7 brings at most 12 tokens to the
first one in four layers. All arguments of an operator count alike, so the tree without positions is
its equal with them within .05. Random graphs of its in-degrees are below full. Baseline: a forest on counts of
tokens.

*What cannot be said.* That a sparse graph beats all pairs on a like footing: the tree arm is given
the parse, which full has to find, so that their difference, .149, is what the parse is worth at 800
batches. Random graphs of its in-degrees have as many edges and no parse, and are below full.
"""

import torch
from shared import chosen, forest, possible, scores_of

from graphattn.convert import from_edge_index
from graphattn.graph import AttentionGraph
from graphattn.graphs import sliding_window
from graphattn.study import Budget, Claim, Comparison, Data, Model, Sample, Study, Training
from graphattn.study.data import samples

SAMPLES, HELD, LEAST, MOST, DEPTH, ARGUMENTS = 5_000, 1_000, 6, 28, 3, 5
MIN, MAX, MED, SM, CLOSE = range(10, 15)  # tokens after the digits
NESTED = 0.25


def draw(depth: int, random: torch.Generator) -> tuple[list[int], int]:
    """Tokens of an expression and its value."""
    tokens, values = [10 + int(torch.randint(4, (), generator=random))], []
    for _ in range(int(torch.randint(2, ARGUMENTS + 1, (), generator=random))):
        if depth > 1 and float(torch.rand((), generator=random)) < NESTED:
            inner, value = draw(depth - 1, random)
            tokens += inner
        else:
            value = int(torch.randint(10, (), generator=random))
            tokens.append(value)
        values.append(value)
    return [*tokens, CLOSE], value_of(tokens[0], values)


def value_of(operator: int, values: list[int]) -> int:
    """Of an operator and its arguments; the median of an even number is the lower mean, as in the
    released code.
    """
    if operator == MED:
        middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
        return sum(middle) // len(middle)
    return sum(values) % 10 if operator == SM else min(values) if operator == MIN else max(values)


def data(count: int = SAMPLES, held: int = HELD) -> Data:
    """Expressions of 6 to 28 tokens, and their values."""
    random, found = torch.Generator().manual_seed(11), list[tuple[list[int], int]]()
    while len(found) < count:
        tokens, value = draw(DEPTH, random)
        if LEAST <= len(tokens) <= MOST:
            found.append((tokens, value))
    inputs = torch.zeros(count, MOST, dtype=torch.int64)
    for row, (tokens, _) in zip(inputs, found, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    sizes = torch.tensor([len(tokens) for tokens, _ in found])
    return Data(inputs, torch.tensor([value for _, value in found]), held, sizes=sizes)


def tree(sample: Sample) -> AttentionGraph:
    """Operators with their arguments and closing brackets, both ways, and self-loops."""
    around, edges = list[int](), list[tuple[int, int]]()  # the operators that are open
    for place, token in enumerate(sample.inputs.tolist()):
        if around:
            edges.append((around[-1], place))
        if token == CLOSE:
            around.pop()
        elif token >= MIN:
            around.append(place)
    down = torch.tensor(edges).t()
    return from_edge_index(
        torch.cat((down, down.flip(0)), 1), num_nodes=sample.num_nodes
    ).with_self_loops()


def baselines(lists: Data) -> dict[str, float]:
    """What tokens say without their order."""
    counts = torch.stack([sample.inputs.bincount(minlength=CLOSE + 1) for sample in samples(lists)])
    return scores_of({"forest on counts of tokens": (counts.numpy(), forest())}, lists)


def study(quick: bool = False, names: list[str] | None = None) -> Study:
    """One comparison; quick, to see that it runs: the tree and full without positions, 100
    expressions, 20 batches.
    """
    every = {"tree": tree, "window 7": sliding_window(..., 7, causal=False)}
    given = chosen(every, ["tree"] if quick and names is None else names)
    comparison = Comparison(
        "listops",
        given,
        data(100, 40) if quick else data(),
        readout="token",
        model=Model(layers=4, width=32, heads=4, hidden=64),
        training=Training(rate=3e-3, batch=32),
        budgets=[Budget(None, 20 if quick else 800)],
        positions=("none",) if quick else ("none", "relative"),
        controls=("full",) if quick else ("self", "full", "in-degrees"),
    )
    claims = [
        Claim("tree", "full", "relative", because="the tree need not be learned"),
        Claim("full", "window 7", "relative", because="far tokens do not reach the first one"),
        Claim("full", "in-degrees of tree", "relative", because="a random sparse graph is no tree"),
        Claim(
            "tree",
            "tree",
            "none",
            margin=0.05,
            equal=True,
            because="arguments count alike",
            worse_positions="relative",
        ),
    ]
    if quick:
        return Study("listops", [comparison], seeds=1)
    return Study(
        "listops",
        [comparison],
        possible(claims, [comparison]),
        {"listops": baselines(comparison.data)},
        seeds=10,
    )

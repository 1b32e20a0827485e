"""Prefix trees: each sequence of the row is what it would be alone."""

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax

from graphattn.errors import GraphError, GraphIndexError, ShapeError
from graphattn.graphs import ancestors, causal, prefix_tree, sliding_window

V = 11
SEQUENCES = {
    "one": [[5, 6, 7]],
    "a fork": [[1, 2, 3], [1, 2, 4, 5]],
    "a prefix of another": [[1, 2, 3, 4], [1, 2]],
    "twice the same": [[1, 2, 3], [4], [1, 2, 3]],
    "later turns": [[1, 2, 3], [1, 2, 4], [1, 2, 3, 5, 6], [7, 2], [1, 8], [1, 2, 3, 5, 9]],
    "one is empty": [[1, 2], [], [1, 3]],
    "of one token": [[4], [4, 4], [4, 4, 4]],
    "no token in common": [[1, 2], [3, 2], [2]],
}
each_case = pytest.mark.parametrize("sequences", SEQUENCES.values(), ids=SEQUENCES)


def padded(rows, fill):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)


def separate(row_logits, rows, kept):
    """Log-probabilities of the tokens of rows that have logits of their own."""
    result = []
    for logits, row, keep in zip(row_logits, rows, kept, strict=True):
        values = torch.zeros(len(row), dtype=logits.dtype)
        for place in range(1, len(row)):
            if keep[place]:
                values[place] = log_softmax(logits[place - 1], -1)[row[place]]
        result.append(values)
    return padded(result, 0.0)


def of_tree(tree, dtype=torch.float64):
    """Logits of the row, and those of each sequence, gathered."""
    generator = torch.Generator().manual_seed(3)
    N = tree.parents.numel()
    logits = torch.randn(1, N, V, generator=generator, dtype=dtype).requires_grad_()
    return logits, [logits[0, path[path >= 0]] for path in tree.paths]


@each_case
def test_paths_hold_the_sequences(sequences):
    tree = prefix_tree(sequences)
    for path, sequence in zip(tree.paths, sequences, strict=True):
        nodes = path[: len(sequence)]
        assert (path[len(sequence) :] == -1).all()
        assert tree.input_ids[0, nodes].tolist() == sequence
        assert tree.position_ids[0, nodes].tolist() == list(range(len(sequence)))
        assert tree.parents[nodes].tolist() == [-1, *nodes.tolist()][: len(sequence)]
        assert tree.graph.subgraph(nodes).equals(causal(len(sequence)))
        assert tree.window(2).subgraph(nodes).equals(sliding_window(len(sequence), 2, causal=True))
    assert tree.graph.equals(ancestors(tree.parents))


@each_case
def test_a_prefix_is_in_the_row_once(sequences):
    prefixes = {tuple(row[:end]) for row in sequences for end in range(1, len(row) + 1)}
    assert prefix_tree(sequences).parents.numel() == len(prefixes)


def test_the_row_is_depth_first_with_branches_in_the_order_of_the_sequences():
    tree = prefix_tree(SEQUENCES["later turns"])
    assert tree.input_ids.tolist() == [[1, 2, 3, 5, 6, 9, 4, 8, 7, 2]]
    tree = prefix_tree([[7], [6, 5], [9]], prompt_ids=[3, 1, 2])
    assert tree.input_ids.tolist() == [[3, 1, 2, 7, 6, 5, 9]]
    assert tree.position_ids.tolist() == [[0, 1, 2, 3, 3, 4, 3]]


@each_case
@pytest.mark.parametrize("prompt", [[], [3], [3, 1, 2]], ids=len)
def test_log_probabilities_are_those_of_separate_rows(sequences, prompt):
    tree = prefix_tree(sequences, prompt_ids=prompt)
    logits, of_rows = of_tree(tree)
    rows = [prompt + row for row in sequences]
    kept = [[place >= len(prompt) for place in range(len(row))] for row in rows]
    expected = separate(of_rows, rows, kept)
    torch.testing.assert_close(tree.log_probs(logits), expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(tree.log_probs(logits[0]), expected, rtol=0, atol=1e-13)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4)).double()
    (found,) = torch.autograd.grad((tree.log_probs(logits) * weight).sum(), logits)
    (gradient,) = torch.autograd.grad((expected * weight).sum(), logits, allow_unused=True)
    if gradient is None:
        gradient = torch.zeros_like(logits)
    torch.testing.assert_close(found, gradient, rtol=0, atol=1e-13)


def test_the_loss_is_that_of_separate_rows_or_counts_a_shared_token_once():
    sequences = SEQUENCES["later turns"]
    rows = [torch.tensor(row) for row in sequences]
    labels = [row.clone() for row in rows]
    labels[0][2] = -100  # in the third and the last sequence the same token is a label
    labels[1][1:] = -100
    tree = prefix_tree(sequences, labels=labels)
    logits, of_rows = of_tree(tree)
    shifted = padded([row[1:] for row in labels], -100)
    before = padded([row[:-1] for row in of_rows], 0.0)
    expected = cross_entropy(before.flatten(0, 1), shifted.flatten())
    torch.testing.assert_close(tree.loss(logits), expected, rtol=0, atol=1e-13)
    sums = tree.log_probs(logits).sum()
    torch.testing.assert_close(-sums / tree.labels.numel(), expected, rtol=0, atol=1e-13)

    once = prefix_tree(sequences, labels=labels, shared="once")
    assert sorted(once.labels.tolist()) == sorted([2, 3, 5, 6, 9, 8, 2])
    assert len(tree.labels) == 11
    chosen = log_softmax(logits[0], -1)[once.predictors, once.labels]
    torch.testing.assert_close(once.loss(logits), -chosen.mean(), rtol=0, atol=1e-13)
    assert torch.equal(once.log_probs(logits), tree.log_probs(logits))
    assert not torch.isclose(once.loss(logits), expected)


def test_parents_may_stand_in_any_order():
    tree = prefix_tree([7, 5, 6, 9, 8], parents=[2, -1, 1, 2, 0], labels=[7, 5, 6, -100, 8])
    assert tree.paths.tolist() == [[1, 2, 3, -1], [1, 2, 0, 4]]
    assert tree.mask.tolist() == [[False, True, False, False], [False, True, True, True]]
    assert tree.labels.tolist() == [6, 6, 7, 8]
    assert tree.predictors.tolist() == [1, 1, 2, 0]
    same = prefix_tree([[5, 6, 9], [5, 6, 7, 8]], labels=[[5, 6, -100], [5, 6, 7, 8]])
    logits, _ = of_tree(same)
    in_order = logits[:, same.paths[[1, 0, 0, 0, 1], [2, 0, 1, 2, 3]]]
    torch.testing.assert_close(tree.log_probs(in_order), same.log_probs(logits))


def test_values_of_shared_tokens_get_the_gradients_of_all_sequences():
    tree = prefix_tree([[1, 2, 3], [1, 4]])
    values = torch.arange(1.0, 5)[:, None].repeat(1, 3).requires_grad_()
    rows = tree.unflatten(values)
    assert rows[..., 0].tolist() == [[1, 2, 3], [1, 4, 0]]
    assert torch.equal(tree.unflatten(values[None]), rows)
    rows.sum().backward()
    assert values.grad[:, 1].tolist() == [2, 1, 1, 1]


def test_log_probabilities_of_low_precision_are_float32():
    tree = prefix_tree([[1, 2, 3], [1, 4]])
    logits, _ = of_tree(tree, torch.bfloat16)
    wide = tree.log_probs(logits.detach().float())
    assert torch.equal(tree.log_probs(logits), wide)
    assert tree.loss(logits).dtype == torch.float32


def test_rows_of_tensors_are_rows():
    rows = torch.tensor([[1, 2, 3], [1, 4, 5]], dtype=torch.int32)
    tree = prefix_tree(rows, labels=rows, prompt_ids=rows[0, :2])
    same = prefix_tree([row.tolist() for row in rows], prompt_ids=[1, 2])
    assert torch.equal(tree.input_ids, same.input_ids)
    assert torch.equal(tree.to("cpu").paths, same.paths)
    assert tree.to("meta").graph.device.type == tree.to("meta").labels.device.type == "meta"
    assert repr(tree) == ("PrefixTree(2 sequences of at most 5 tokens: 7 tokens for 10, 6 labels)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "sequences must have at least one token, got none"),
        ((5,), "sequences must be lists of tokens, got 5"),
        (([5, 6],), r"sequences\[0\] must have shape \(n,\), got a Tensor \(\)"),
        (([[1, 2], [1.5]],), r"sequences\[1\] must be integers"),
        (([[1, -100]],), r"sequences\[0\] must be tokens >= 0, got -100; remove padding"),
        (
            ([[1]], {"prompt_ids": [[1]]}),
            r"prompt_ids must have shape \(n,\), got a Tensor \(1, 1\)",
        ),
        (([[1]], {"shared": "twice"}), "shared must be"),
        (([[1, 2]], {"labels": [[2]]}), r"labels\[0\] must have shape \(2,\), got a Tensor \(1,\)"),
        (
            ([[1, 2, 3]], {"labels": [[2, 3, -100]]}),
            r"labels\[0\] must be the tokens themselves or -100, got 2 at 0; labels are "
            "not shifted",
        ),
        (([1, 2], {"parents": [-1]}), r"parents must have shape \(2,\), got a Tensor \(1,\)"),
        (([1, 2], {"parents": [1, 0]}), "parent must be a forest, got a cycle"),
        (([], {"parents": []}), "sequences must have at least one token, got none"),
        (([1], {"parents": [-1], "prompt_ids": [1]}), "prompt_ids are for sequences, got parents"),
    ],
)
def test_what_is_no_tree_is_refused(arguments, message):
    options = {}
    if isinstance(arguments[-1], dict):
        options = arguments[-1]
    with pytest.raises(GraphError, match=message):
        prefix_tree(arguments[0], **options)


def test_a_parent_that_is_no_token_is_refused():
    with pytest.raises(GraphIndexError, match=r"parent must be in \[-1, 2\), .* got -1 to 4"):
        prefix_tree([1, 2], parents=[-1, 4])


def test_logits_of_other_tokens_are_refused():
    tree = prefix_tree([[1, 2, 3], [1, 4]])
    for shape in ((2, 3, V), (1, 3, V), (4,), (5, V)):
        with pytest.raises(ShapeError, match=r"logits must be \(1, 4, V\) or \(4, V\)"):
            tree.log_probs(torch.zeros(shape))
    with pytest.raises(ShapeError, match=r"values must be \(1, 4, ...\)"):
        tree.unflatten(torch.zeros(3))
    with pytest.raises(GraphError, match="loss needs a token with a label"):
        prefix_tree([[1], [2]]).loss(torch.zeros(1, 2, V))


def test_a_row_needs_a_token():
    with pytest.raises(GraphError, match="sequences must have at least one token, got none"):
        prefix_tree([[], []])
    assert prefix_tree([[], []], prompt_ids=[5, 6]).input_ids.tolist() == [[5, 6]]


def test_a_batch_of_one_prompt_is_refused_with_its_row():
    prompt = torch.tensor([[5, 6]])
    with pytest.raises(
        GraphError, match=r"prompt_ids must have shape \(n,\), got a Tensor \(1, 2\)"
    ):
        prefix_tree([[7]], prompt_ids=prompt)
    with pytest.raises(
        GraphError, match=r"prompt_ids must have shape \(n,\), got a Tensor \(2, 2\)"
    ):
        prefix_tree([[7]], prompt_ids=prompt.expand(2, 2))

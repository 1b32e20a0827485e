"""Heads of a BERT of transformers can read along a parse tree: each layer, what a word reads is one
edge further away.

The model stays that of transformers, patched in place; the tree is another one for each sentence of
the batch.
"""

import torch
import transformers

import graphattn as ga

SENTENCES = ["the cat that slept on the mat saw a dog", "she reads"]
HEADS = [[1, 7, 3, 1, 3, 6, 4, 7, 9, 7], [1, 1]]  # the head of each word; the root is its own
words = sorted({word for sentence in SENTENCES for word in sentence.split()})
longest = max(map(len, HEADS))


def tree(heads: list[int]) -> ga.AttentionGraph:
    """Every word reads itself, its head and its dependants; padding reads nothing."""
    word = torch.arange(len(heads))
    up = ga.from_edge_index(torch.stack((torch.tensor(heads), word)), num_nodes=longest)
    return up | up.reverse() | ga.from_edge_index(torch.stack((word, word)), num_nodes=longest)


trees = [tree(heads) for heads in HEADS]
print(trees[0])


def along(input_ids: torch.Tensor) -> list[ga.PerHead]:
    """Half of the heads read along the tree of their sentence, the others everything."""
    return [ga.PerHead((trees[int(row[-1] == 0)], ga.graphs.full(longest))) for row in input_ids]


torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=len(words) + 1,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
)
model = transformers.BertModel(config).double().eval()
ids = torch.zeros(2, longest, dtype=torch.int64)
for row, sentence in enumerate(SENTENCES):
    ids[row, : len(sentence.split())] = torch.tensor(
        [words.index(word) + 1 for word in sentence.split()]
    )
there = ids != 0
ga.patch(model, along)
# (B, H, T, S)
weights = model(ids, attention_mask=there, output_attentions=True).attentions[0].dense()
on_tree = trees[0].mask()
assert float(weights[0, :2][:, ~on_tree].detach().abs().max()) == 0.0
assert float(weights[0, 2:][:, ~on_tree].detach().min()) > 0.0

# all heads, to see what reaches
ga.patch(model, lambda input_ids: [trees[int(row[-1] == 0)] for row in input_ids])
whole = model(ids, attention_mask=there).last_hidden_state
moved = ids.clone()
moved[0, 6] = words.index("dog") + 1  # another word for "mat"
changed = (model(moved, attention_mask=there).last_hidden_state - whole).abs().amax(-1) > 1e-12
reached = (on_tree.long() @ on_tree.long() > 0)[:, 6]
assert changed[0].tolist() == reached.tolist()
assert not changed[1].any()
print(f'through two layers "mat" reaches {int(changed[0].sum())} of {len(HEADS[0])} words')

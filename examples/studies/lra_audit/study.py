"""Long Range Arena: what reaches each readout, by the released code.

*Question.* The benchmark of Tay et al. 2021 ("Long Range Arena", arXiv 2011.04006) compares sparse
attention patterns on inputs of 1,000 to 4,000 tokens. What does the readout of each model depend
on?

*Method.* The code of google-research/long-range-arena at commit cd31e5c was read, and each graph
built as it builds it; ``graphattn.analysis.receptive_field`` counts through as many layers as the
configuration has. Nothing is trained, and no accuracy is reproduced: published numbers may come
from other code.

*Found, by the lines named beside each number.* Arms differ in more than the graph. "Local" groups
tokens by residue, so its groups never mix at any depth. "Longformer" has no global token. "Sparse"
is lower-triangular in an encoder, and all tokens read CLS where there is one. On Image and
Pathfinder readout and depth differ between models. The padding mask of "local" belongs to other
tokens than it is used for.
"""

from typing import Any

import numpy as np
import torch
from untrained import Finding, Findings

from graphattn.analysis import receptive_field
from graphattn.convert import from_mask
from graphattn.graph import AttentionGraph
from graphattn.graphs import documents, global_tokens, sliding_window, sparse_fixed
from graphattn.study.page import from_docstring

REPOSITORY = "google-research/long-range-arena at cd31e5c"
#: Layers and readout of every task's base configuration; Image and Pathfinder name their own for
#: each model.
CONFIGS = """| task | layers | width | heads | steps | readout |
|---|---|---|---|---|---|
| ListOps | 4 | 512 | 8 | 5,000 | CLS |
| Text | 4 | 256 | 4 | 20,000 | CLS |
| Retrieval | 4 | 128 | 4 | 5,000 | first token: `*DualEncoder` adds no CLS, its head takes `encoded[:, 0]` |
| Image | longformer 4, the others 1 | 128 | 8, 2, 4, 8 | 35,000 | CLS; local and longformer: mean |
| Pathfinder | transformer 4, local 2, longformer 2, sparse 1, bigbird 4 | 32 or 64 | 4, 4, 2, 8, 2 | 62,400 | mean |

Heads of Image and Pathfinder: transformer, local, longformer, sparse, bigbird."""
FAULTS = """* `(inputs > 0)` is the padding mask on images too (local.py:150): black pixels count as padding.
* BigBird on Image has `num_head = 4` (configs/cifar10/bigbird_base.py:28), handed over by image/train.py:343, which
  `BigBirdEncoder.apply` does not take.
* `jnp.pad(padding_mask, ..., constant_values=-1e9)` pads a mask of booleans with True (local_attention.py:237): the pad
  slots are visible.
* `get_model` (utils/train_utils.py:35-91) knows a dual encoder for `transformer_tlb` alone; the `DualEncoder` classes
  of the other models, which exist, are what is counted for Retrieval.
* The mask is reshaped to contiguous blocks (local_attention.py:342), the tokens to (block, num_blocks) and attended
  along the first of these axes (:318-323, :386-391), which groups them by residue.
* Published averages (table 1): Transformer 54.39, Local 46.06, Sparse 51.24, Longformer 53.46, BigBird 55.01, Performer
  51.41."""


def local(tokens: int, block: int = 50) -> AttentionGraph:
    """Token p reads all of its residue: ``p mod num_blocks``, after padding by
    ``block - tokens % block``.
    """
    padded = tokens + block - tokens % block
    return documents(torch.arange(padded) % (padded // block), causal=False)


def longformer(tokens: int, window: int = 512) -> AttentionGraph:
    """``window - window // 2 - 1`` to the left, ``window // 2`` to the right, and no global
    token.
    """
    right = window // 2
    return sliding_window(tokens, (window - right - 1, right))


def sparse(tokens: int, cls: bool) -> AttentionGraph:
    """The two fixed patterns of block 50 with 10 summaries, lower-triangular; CLS is joined to
    all.
    """
    rest = tokens - cls
    node = torch.arange(rest)
    target, source = node[:, None], node
    kept = (target // 50 == source // 50) | (source % 50 == 0) | (source % 50 >= 40)
    mask = torch.ones(tokens, tokens, dtype=torch.bool)
    mask[int(cls) :, int(cls) :] = kept & (source <= target)
    return from_mask(mask)


def bigbird(tokens: int, block: int = 64) -> AttentionGraph:
    """Windows of blocks and two global blocks; random blocks left out: the first block reads all
    without them.
    """
    ends = tuple(range(block)) + tuple(range(tokens - block, tokens))
    return sliding_window(tokens, 2 * block + 1, causal=False) | global_tokens(tokens, ends)


def reached(graph: AttentionGraph, layers: int, tokens: int, target: int = 0) -> int:
    """Real tokens that a target depends on after so many layers; padding slots are not counted."""
    field = receptive_field([graph] * layers, targets=[target], residual=True).graphs[-1]
    return int((field.source < tokens).sum())


def mixed(graph: AttentionGraph, layers: int, tokens: int) -> str:
    """Under a mean: how many tokens a token depends on, least to most."""
    sizes = [reached(graph, layers, tokens, t) for t in range(17)]
    return f"{min(sizes)} to {max(sizes)}"


def window_spread(tokens: int, layers: int, window: int = 512) -> str:
    """Of Longformer's window by arithmetic: L times its left and its right side, cut off at the
    ends.
    """
    right = window // 2
    left = window - right - 1
    sizes = [min(t, layers * left) + 1 + min(tokens - 1 - t, layers * right) for t in range(tokens)]
    return f"{min(sizes)} to {max(sizes)}"


def spread_of(graph: AttentionGraph, layers: int) -> str:
    """The same, of graphs without padding."""
    sizes = receptive_field([graph] * layers, residual=True).sizes[-1]
    return f"{int(sizes.min())} to {int(sizes.max())}"


def wrong_mask_slots(tokens: int, longest: int = 2000, block: int = 50) -> int:
    """Slots of "local" whose padding mask is that of another token, for an example of so many
    tokens.
    """
    seq = longest + 1
    padded = seq + block - seq % block
    blocks = padded // block
    used = np.zeros(padded, dtype=bool)
    used[: tokens + 1] = True  # CLS and the tokens
    used[seq:] = True  # jnp.pad of booleans with -1e9 is True
    contiguous = used.reshape(blocks, block)  # as the code has it
    token = np.arange(block) * blocks + np.arange(blocks)[:, None]  # what slot a of group b holds
    return int((contiguous != (token < tokens + 1)).sum())


def study() -> Findings:
    """Every count, beside what was read in the code."""
    at = "models/local/local_attention.py:228, 318-323, 386-391"
    local_part = [
        Finding("ListOps: CLS after 4 layers depends on, of 2,001", 49, reached(local(2001), 4, 2001), 0, at),
        Finding("the same after 40 layers", 49, reached(local(2001), 40, 2001), 0, at),
        Finding("Text as configured: of 1,001", 48, reached(local(1001), 4, 1001), 0, f"{at}; base_tc_config"),
        Finding("Text at the paper's length: of 4,001", 50, reached(local(4001), 4, 4001), 0, at),
        Finding("Retrieval: first token, of 4,000", 50, reached(local(4000), 4, 4000), 0, f"{at}; local.py:266-290"),
        Finding("Image, mean: a pixel mixes with, of 1,024", "60 to 61", mixed(local(1024, 64), 1, 1024), 0, at),
        Finding("Pathfinder, mean: a pixel mixes with, of 1,024", "60 to 61", mixed(local(1024, 64), 2, 1024), 0, at),
        Finding("ListOps, 1,000 tokens: slots with another token's padding mask, of 2,050", 1009,
                wrong_mask_slots(1000), 0, "local_attention.py:237, 342-355"),
    ]  # fmt: skip
    window = longformer(2001)
    at = "models/longformer/longformer_attention.py:60-66, 231-232"
    longformer_part = [
        Finding(
            f"ListOps: CLS after {L} layer{'s' * (L > 1)}, of 2,001",
            256 * L + 1,
            reached(window, L, 2001),
            0,
            at,
        )
        for L in (1, 2, 3, 4)
    ]
    longformer_part += [
        Finding(
            "Text as configured: CLS after 4 layers, of 1,001",
            1001,
            reached(longformer(1001), 4, 1001),
            0,
            at,
        ),
        Finding(
            "Text at the paper's length: of 4,001", 1025, reached(longformer(4001), 4, 4001), 0, at
        ),
        Finding(
            "Retrieval: the first token, of 4,000", 1025, reached(longformer(4000), 4, 4000), 0, at
        ),
        Finding(
            "Image, mean, 4 layers: a pixel depends on",
            window_spread(1024, 4),
            spread_of(longformer(1024), 4),
            0,
            at,
        ),
        Finding(
            "Pathfinder, mean, 2 layers: a pixel depends on",
            window_spread(1024, 2),
            spread_of(longformer(1024), 2),
            0,
            at,
        ),
    ]
    at = "models/sparse_transformer/sparse_attention.py:82-94, 185-195; utils/train_utils.py:74-78"
    lower = sparse(1024, cls=False)
    sparse_part = [
        Finding("ListOps: CLS after 1 layer, of 2,001", 2001, reached(sparse(2001, cls=True), 1, 2001), 0, at),
        Finding("Image: CLS after its 1 layer, of 1,025", 1025, reached(sparse(1025, cls=True), 1, 1025), 0, at),
        Finding("Retrieval: the first token after 1 layer, of 4,000", 4000, reached(sparse(4000, cls=True), 1, 4000), 0,
                f"{at}; sparse_transformer.py:159-161 joins it to all as if it were CLS"),
        Finding("Pathfinder, mean, 1 layer: a pixel depends on, of 1,024", "1 to 259", spread_of(lower, 1), 0, at),
        Finding("a later pixel is read", False, bool((lower.source > lower.target).any()), 0, at),
        Finding("as `graphs.sparse_fixed(1024, 50, 10)` beside the first column of each block", True,
                bool((sparse_fixed(1024, 50, 10) - lower).num_edges == 0), 0, "Child et al. 2019, section 4.3"),
    ]  # fmt: skip
    at = "models/bigbird/bigbird_attention.py:171-179"
    bigbird_part = [
        Finding(
            "ListOps: CLS after 1 layer, of 2,048 with padding",
            2048,
            reached(bigbird(2048), 1, 2048),
            0,
            at,
        ),
    ]
    parts = {
        "Local": local_part,
        "Longformer": longformer_part,
        "Sparse": sparse_part,
        "BigBird": bigbird_part,
    }
    about = "\n\n".join([from_docstring(__doc__), f"Source: {REPOSITORY}.", CONFIGS, FAULTS])
    return Findings("Long Range Arena: what reaches the readout", about, parts, draw)


#: Tokens that the readout depends on after the layers of the configuration, and of how many.
READ = {
    "ListOps": ({"local": 49, "longformer": 1025, "sparse": 2001, "BigBird": 2001}, 2001),
    "Text, as configured": (
        {"local": 48, "longformer": 1001, "sparse": 1001, "BigBird": 1001},
        1001,
    ),
    "Text, 4,000": ({"local": 50, "longformer": 1025, "sparse": 4001, "BigBird": 4001}, 4001),
    "Retrieval": ({"local": 50, "longformer": 1025, "sparse": 4000, "BigBird": 4000}, 4000),
}


def draw() -> Any:
    """The share of the input that reaches CLS or the first token, after the layers of the
    configuration.
    """
    from graphattn.study.figure import axes
    from graphattn.viz.style import FAINT, HIGHLIGHTS, INK, MARKERS, TEXT, empty_figure

    figure = empty_figure(None, 6.9, 2.6)
    ax = axes(
        figure,
        (1, 1, 1),
        "share of the input that the readout depends on, as the released code builds it",
    )
    for y, (counts, tokens) in enumerate(READ.values()):
        for number, (model, count) in enumerate(counts.items()):
            share, at = count / tokens, y + 0.17 * (number - 1.5)
            ax.plot([1e-3, share], [at, at], color=HIGHLIGHTS[number], linewidth=1.2, alpha=0.6)
            label = model if y == 0 else None
            ax.plot(
                [share], [at], MARKERS[number], color=HIGHLIGHTS[number], markersize=6, label=label
            )
            if count < tokens:
                told = {"fontsize": TEXT - 2, "color": INK}
                # clear of those at 1
                told |= {"ha": "right", "va": "bottom"} if share > 0.4 else {"va": "center"}
                ax.text(
                    share * (1 / 1.06 if share > 0.4 else 1.09),
                    at,
                    f"{count:,} of {tokens:,}",
                    **told,
                )
    ax.set_xscale("log")
    ax.set_xlim(8e-3, 1.3)
    ax.set_yticks(range(len(READ)), list(READ))
    ax.invert_yaxis()
    ax.grid(True, axis="x", color=FAINT, linewidth=0.6)
    ax.set_xlabel("share (log scale)", fontsize=TEXT)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=TEXT - 1)
    return figure

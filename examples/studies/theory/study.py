r"""Theorems about connectivity, each beside a measurement.

*Collapse.* Without residuals, layers of attention make all tokens alike; how fast is the graph's.
Values are passed on as they are, queries and keys are random, in float64 (float32 floors at 2e-6);
:math:`N = 32, d = 16`, five seeds. Predicted: the logarithm of the distance of the tokens to their
mean falls, late, by :math:`\log_2 |\lambda_2|` a layer, the second eigenvalue of uniform attention
on the graph, with no fitted number: three graphs have 1/2, three others theirs. It is measured over
the last 12 of 200 layers that are above 1e-12. It does not apply where the floor is reached in
fewer layers (full: at once; a prefix of 8: about 20), and eight blocks are the negative control:
each collapses to its own mean, and their distance stays.

*Position bias.* Under a causal mask the first token is what all read in the end.

*Expanders, path lengths, convolution, kernels.* As the headings below say.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from untrained import Finding, Findings

from graphattn import graphs as g
from graphattn.analysis import connectivity, hops, receptive_field, spectral_gap
from graphattn.functional import attention
from graphattn.graph import AttentionGraph
from graphattn.nn import PositiveFeatures
from graphattn.study.page import from_docstring

N, D, SEEDS, LAYERS, LATE, FLOOR = 32, 16, 5, 200, 12, 1e-12
COLLAPSE = "Wu et al. 2024, arXiv 2405.18781; the slope: Levin and Peres 2017, section 12.1"


def collapsing() -> dict[str, AttentionGraph]:
    """Graphs to which the slope applies."""
    return {
        "causal": g.causal(N),
        "star and self": g.global_tokens(N, (0,)) | g.self_loops(N),
        "causal window of 4": g.sliding_window(N, 4, causal=True),
        "random 8-regular": g.random_regular(N, 8),
        "ring, 15 around": g.circulant(N, tuple(range(-7, 8))),
        "random 4-regular": g.random_regular(N, 4),
    }


def distances(graph: AttentionGraph, seed: int, layers: int = LAYERS) -> Tensor:
    """Of the tokens to their mean, after each layer."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, dtype=torch.float64, generator=random)
    found = []
    for _ in range(layers):
        query, key = (
            x @ torch.randn(D, D, dtype=torch.float64, generator=random) / 4 for _ in range(2)
        )
        x = _attended(query[:, None], key[:, None], x[:, None], graph)[:, 0]
        found.append((x - x.mean(0)).norm())
    return torch.stack(found)


def slope(distance: Tensor) -> float:
    """Of log2 of the distance over the last layers above the floor."""
    last = int(torch.nonzero(distance > FLOOR).max())
    first = max(last - LATE, 1)
    return float((distance[last] / distance[first]).log2() / (last - first))


def collapse() -> list[Finding]:
    """Slopes of each seed, and the negative control."""
    found = []
    for name, graph in collapsing().items():
        predicted = float(np.log2(1 - spectral_gap(graph)))
        slopes = [slope(distances(graph, seed)) for seed in range(SEEDS)]
        worst = max(slopes, key=lambda s: abs(s - predicted))
        found.append(
            Finding(
                f"{name}: late slope of log2 distance per layer, the worst of 5 seeds",
                predicted,
                worst,
                0.01,
                COLLAPSE,
            )
        )
        found.append(
            Finding(
                f"{name}: one token that all depend on",
                True,
                connectivity(graph).quasi_strong,
                0,
                COLLAPSE,
            )
        )
    blocks = [distances(g.block_local(N, 4, causal=False), seed, 48) for seed in range(SEEDS)]
    kept = min(float(distance[-1] / distance[7]) for distance in blocks)
    found.append(
        Finding(
            "eight blocks: one token that all depend on",
            False,
            connectivity(g.block_local(N, 4, causal=False)).quasi_strong,
            0,
            COLLAPSE,
        )
    )
    found.append(
        Finding(
            "eight blocks: distance after 48 layers over that after 8",
            1.0,
            kept,
            0.01,
            "negative control",
        )
    )
    full = max(float(distances(g.full(N), seed, 8)[-1]) for seed in range(SEEDS))
    found.append(Finding("full: distance after 8 layers", 0.0, full, 1e-12, COLLAPSE))
    return found


def uniform(graph: AttentionGraph) -> Tensor:
    """Weights (N, N) of attention whose scores are all 0, as attention computes them."""
    zero, value = (
        torch.zeros(graph.num_targets, 1, 1, dtype=torch.float64),
        torch.eye(graph.num_sources).double(),
    )
    return _attended(zero, zero, value[:, None], graph)[:, 0]


def _attended(
    query: Tensor, key: Tensor, value: Tensor, graph: AttentionGraph, **given: Any
) -> Tensor:
    output = attention(query, key, value, graph, **given)
    assert isinstance(output, Tensor)
    return output


def position_bias() -> list[Finding]:
    """What the last token holds of the first, through layers of uniform causal attention."""
    source = "Wu et al. 2025, arXiv 2502.01951"
    weights = uniform(g.causal(N))
    harmonic = sum(1 / k for k in range(1, N + 1))
    power = torch.linalg.matrix_power(weights, 100)
    window = torch.linalg.matrix_power(uniform(g.sliding_window(N, 4, causal=True)), 20)
    less = bool(window[-1, 0] < torch.linalg.matrix_power(weights, 20)[-1, 0])
    two = weights @ weights
    return [
        Finding(
            "share of the first token in the last, 1 layer: 1/N",
            1 / N,
            float(weights[-1, 0]),
            1e-12,
            source,
        ),
        Finding("2 layers: H_N / N", harmonic / N, float(two[-1, 0]), 1e-12, source),
        Finding("100 layers: all of it", 1.0, float(power[-1, 0]), 1e-9, source),
        Finding(
            "2 layers: earlier tokens have the larger shares",
            True,
            bool((two[-1].diff() < 0).all()),
            0,
            source,
        ),
        Finding(
            "window of 4, 20 layers: the first token has less than under all of the mask",
            True,
            less,
            0,
            source,
        ),
    ]


def expanders() -> list[Finding]:
    """Random regular graphs against all pairs."""
    source = "Friedman 2008; Shirzad et al. 2023 (Exphormer), section 4.1"
    found = []
    for n, d in ((256, 4), (256, 8), (512, 16)):
        graph = g.random_regular(n, d)
        second = 1 - spectral_gap(graph)
        bound = 2 * (d - 1) ** 0.5 / d
        found.append(
            Finding(
                f"N = {n}, degree {d}: second eigenvalue, 2 sqrt(d - 1) / d",
                bound,
                second,
                0.05,
                source,
            )
        )
    walk = torch.linalg.matrix_power(uniform(graph), 12)
    most = float((walk - 1 / n).abs().sum(1).max() / 2)
    held = most <= n**0.5 * second**12 / 2 + 1e-12
    mixing = (
        f"N = {n}, degree {d}: after 12 layers rows are within sqrt(N) |lambda_2|^12 / 2 of uniform"
    )
    found.append(Finding(mixing, True, held, 0, "Exphormer, section 4.2 (random walks mix)"))
    cycle = 1 - spectral_gap(g.sliding_window(257, 3, causal=False))
    found.append(
        Finding(
            "a chain of 257 is no expander: its second eigenvalue is above .999",
            True,
            cycle > 0.999,
            0,
            "control",
        )
    )
    return found


def path_lengths() -> list[Finding]:
    """Longest ways between two positions: table 1 of "Attention is all you need", with its
    constants.
    """
    source = "Vaswani et al. 2017, table 1"
    n, k, r = 257, 5, 33
    dilated = [g.sliding_window(n, k, causal=True, dilation=k**i) for i in range(4)]
    reach = [int(size[-1]) for size in receptive_field(dilated).sizes]
    needed = next(i for i, size in enumerate(reach, 1) if size == n)
    return [
        Finding("self-attention: 1", 1, hops(g.full(n)).layers, 0, source),
        Finding("recurrent: n - 1", n - 1, hops(g.sliding_window(n, 2, causal=True)).layers, 0, source),
        Finding(f"convolution of {k}: (n - 1) / ((k - 1) / 2)", -(-(n - 1) // (k // 2)),
                hops(g.sliding_window(n, k, causal=False)).layers, 0, source),
        Finding(f"dilated convolutions of {k}: log_k n, rounded up", 4, needed, 0, source),
        Finding(f"restricted self-attention, {r} around: (n - 1) / (r // 2)", -(-(n - 1) // (r // 2)),
                hops(g.sliding_window(n, r, causal=False)).layers, 0, source),
    ]  # fmt: skip


def convolution() -> list[Finding]:
    """Nine heads, each with a quadratic score of relative position, are a convolution of 3 x 3."""
    side, channels, out, sharpness = 6, 3, 5, 400.0
    random = torch.Generator().manual_seed(0)
    x = torch.randn(side * side, channels, dtype=torch.float64, generator=random)
    kernel = torch.randn(out, channels, 3, 3, dtype=torch.float64, generator=random)
    graph, node = g.full(side * side), torch.arange(side * side)
    place = torch.stack((node // side, node % side), 1)
    shift = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2))  # (9, 2)
    off = (place[graph.source] - place[graph.target]).unsqueeze(1) - shift
    bias = -sharpness * off.square().sum(-1).double()  # (E, 9)
    zero = torch.zeros(side * side, 9, 1, dtype=torch.float64)
    heads = _attended(zero, zero, x[:, None].expand(-1, 9, -1), graph, score_bias=bias)
    ours = torch.einsum("nhc,och->no", heads, kernel.flatten(2)).view(side, side, out)
    theirs = nn.functional.conv2d(x.t().view(1, channels, side, side), kernel)[0].permute(1, 2, 0)
    difference = float((ours[1:-1, 1:-1] - theirs).abs().max())
    source = "Cordonnier et al. 2020, theorem 1 (away from the border)"
    return [Finding("largest difference from torch's conv2d", 0.0, difference, 1e-12, source)]


def kernels() -> list[Finding]:
    """Positive random features: the kernel of softmax on average, with an error of m ** -0.5."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 64, 8, dtype=torch.float64, generator=random) / 2
    exact = (query @ key.t() / 8**0.5).exp()
    sizes, errors, mean = (16, 64, 256, 1024), [], torch.zeros_like(exact)
    for m in sizes:
        made = []
        for seed in range(40):
            features = PositiveFeatures(8, m, seed).double()
            made.append(features(query) @ features(key).t())
        errors.append(float((torch.stack(made) - exact).square().mean().sqrt()))
        mean = torch.stack(made).mean(0)
    fitted = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    bias = float(((mean - exact) / exact).abs().mean())
    source = "Choromanski et al. 2021 (Performer), lemma 1"
    return [
        Finding("error over features, slope on log scales", -0.5, fitted, 0.05, source),
        Finding("relative bias of the mean of 40 draws of 1,024 features", 0.0, bias, 0.01, source),
    ]


def study() -> Findings:
    """All parts."""
    parts = {
        "Collapse by mask": collapse(),
        "Position bias of causal masks": position_bias(),
        "Expanders": expanders(),
        "Path lengths": path_lengths(),
        "A convolution as attention": convolution(),
        "Linear attention's kernel": kernels(),
    }
    return Findings(
        "Theory: connectivity by theorem and by measurement", from_docstring(__doc__), parts, draw
    )


def draw() -> Any:
    """Distance to the mean by layer, with the predicted slopes."""
    from graphattn.study.figure import axes
    from graphattn.viz.style import EDGE, FAINT, HIGHLIGHTS, INK, TEXT, empty_figure

    figure = empty_figure(None, 6.9, 3.0)
    ax = axes(figure, (1, 1, 1), "attention without residuals: distance of 32 tokens to their mean")
    graphs = {**collapsing(), "eight blocks": g.block_local(N, 4, causal=False)}
    del graphs["star and self"]  # lies on causal
    for number, (name, graph) in enumerate(graphs.items()):
        found = torch.stack([distances(graph, seed, 70) for seed in range(SEEDS)]).clamp(min=1e-16)
        layer, colour = np.arange(1, 71), HIGHLIGHTS[number]
        ax.fill_between(layer, found.amin(0), found.amax(0), color=colour, alpha=0.15, linewidth=0)
        middle = found.median(0).values
        ax.plot(layer, middle, color=colour, linewidth=1.6, label=name)
        if name != "eight blocks":
            last = int(torch.nonzero(middle > FLOOR).max())
            rate, at = 1 - spectral_gap(graph), layer[max(last - 24, 0) : last]
            ax.plot(
                at,
                float(middle[last]) * rate ** (at - layer[last]) / 4,
                color=colour,
                linestyle=(0, (4, 2)),
                linewidth=1,
            )
    ax.plot(
        [],
        [],
        color=EDGE,
        linestyle=(0, (4, 2)),
        linewidth=1,
        label=r"slope predicted: $|\lambda_2|$ a layer",
    )
    ax.set_yscale("log")
    ax.set_ylim(1e-13, 60)
    ax.set_xlim(1, 70)
    ax.grid(True, color=FAINT, linewidth=0.6)
    ax.set_xlabel("layer", fontsize=TEXT)
    ax.set_ylabel("distance (Frobenius norm)", fontsize=TEXT)
    ax.legend(frameon=False, fontsize=TEXT - 1, labelcolor=INK)
    return figure

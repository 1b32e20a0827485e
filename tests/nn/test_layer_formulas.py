"""Every score, normalisation and edge feature of the layer against formulas written down edge by
edge, in plain loops.

Nothing here is shared with the layer but its parameters, nor with verify's twins: no gather, no
scatter, no mask.
"""

import math

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn.nn import GraphAttention

H, KV, D, F, C = 4, 2, 3, 5, 11
# 2 and 6 read nobody, 1 reads one source
GRAPH = ga.from_edge_index(
    torch.tensor(
        [[0, 2, 5, 1, 1, 3, 4, 5, 0, 6, 2, 2, 6], [0, 0, 0, 1, 3, 3, 3, 3, 4, 4, 4, 5, 5]]
    ),
    num_nodes=7,
)
OTHER = ga.from_edge_index(torch.tensor([[3, 2, 5, 1, 6], [0, 0, 0, 6, 6]]), num_nodes=7)


def scaled_dot(score, q, k, h, added, a):
    return torch.dot(q[h], k[h] + added[h]) / math.sqrt(D)


def cosine(score, q, k, h, added, a):
    factor = min(math.exp(score.log_scale[h, 0].item()), 100.0)
    exact = score.log_scale[h, 0].exp() if factor < 100.0 else factor
    return (
        exact * torch.dot(q[h], k[h]) / torch.dot(q[h], q[h]).sqrt() / torch.dot(k[h], k[h]).sqrt()
    )


def mlp(score, q, k, h, added, a):
    given = torch.cat((q[h], k[h]) if a is None else (q[h], k[h], a))
    hidden = (score.hidden.weight @ given + score.hidden.bias).clamp(min=0)
    return torch.dot(score.out.weight[0], hidden) + score.out.bias[0]


def additive(score, q, k, h, added, a):
    of_edge = 0.0 if a is None else (score.edge.weight @ a).view(H, D)[h]
    return torch.dot(score.weight[h], torch.tanh(q[h] + k[h] + of_edge))


def perceptron(part, x):
    return part[2].weight @ (part[0].weight @ x + part[0].bias).clamp(min=0) + part[2].bias


def subtraction(score, q, k, h, added, a):
    return perceptron(score.gamma, (q - k + added).flatten())[h]


SCORES = {
    "scaled_dot": scaled_dot,
    "dot": lambda score, q, k, h, added, a: torch.dot(q[h], k[h]),
    "cosine": cosine,
    "general": lambda score, q, k, h, added, a: q[h] @ score.weight[h] @ k[h],
    "additive": additive,
    "mlp": mlp,
    "gaussian": lambda score, q, k, h, added, a: (
        -(q[h] - k[h]).square().sum() / (2 * score.log_sigma[h].exp().square())
    ),
    "subtraction": subtraction,
}


def sparsemax(z):
    """The largest support whose threshold all of it exceeds."""
    for size in range(len(z), 0, -1):
        chosen = sorted(range(len(z)), key=lambda i: -z[i].item())[:size]
        tau = (sum(z[i] for i in chosen) - 1) / size
        if all(z[i].item() > tau.item() for i in chosen):
            return [z[i] - tau if i in chosen else 0.0 * z[i] for i in range(len(z))]
    raise AssertionError


def hard(z):
    best = max(range(len(z)), key=lambda i: (z[i].item(), -i))
    return [
        torch.ones(()).double() if i == best else torch.zeros(()).double() for i in range(len(z))
    ]


NORMALIZERS = {
    "softmax": lambda n, h, z: [x.exp() / sum(y.exp() for y in z) for x in z],
    "sink": lambda n, h, z: [x.exp() / (n.logit[h].exp() + sum(y.exp() for y in z)) for x in z],
    "sigmoid": lambda n, h, z: [1 / (1 + (math.log(len(z)) - x).exp()) for x in z],
    "hard": lambda n, h, z: hard(z),
    "sparsemax": lambda n, h, z: sparsemax(z),
    "sum": lambda n, h, z: [x / sum(z) for x in z],
    "none": lambda n, h, z: z,
}


def formula(layer, score, normalize, x, graphs, edge_attr, bias, softcap):
    """The layer's output (T, C), and its weights (E, H); ``graphs`` are those of each head."""
    union = graphs if isinstance(graphs, ga.AttentionGraph) else graphs.union()
    heads = (
        [graphs] * H
        if union is graphs
        else [graph for graph in graphs.graphs for _ in range(H // 2)]
    )
    edges = [(int(s), int(t)) for s, t in union.edge_index.T]
    there = [{(int(s), int(t)) for s, t in graph.edge_index.T} for graph in heads]
    keys, of_values = (  # head i reads group i // 2
        [
            torch.stack([whole[i // 2 * D : i // 2 * D + D] for i in range(H)])
            for whole in map(proj, x)
        ]
        for proj in (layer.k_proj, layer.v_proj)
    )
    weights, rows = torch.zeros(len(edges), H).double(), []
    for t in range(7):
        q, row = layer.q_proj(x[t]).view(H, D), []
        for h in range(H):
            mine = [e for e, edge in enumerate(edges) if edge[1] == t and edge in there[h]]
            z, values = [], []
            for e in mine:
                s, a = edges[e][0], None if edge_attr is None else edge_attr[e]
                k, v = keys[s], of_values[s]
                added = torch.zeros(H, D).double()
                if a is not None and score == "subtraction":
                    added = perceptron(layer.score.delta, a).view(H, D)
                elif a is not None:
                    added = torch.stack(
                        [
                            (layer.edge_proj.weight @ a)[i // 2 * D : i // 2 * D + D]
                            for i in range(H)
                        ]
                    )
                at = SCORES[score](layer.score, q, k, h, added, a)
                at = at if softcap is None else softcap * torch.tanh(at / softcap)
                z.append(at if bias is None else at + bias[e, h])
                values.append(v[h] + added[h])
            alpha = NORMALIZERS[normalize](layer.normalize, h, z) if mine else []
            row.append(sum((w * v for w, v in zip(alpha, values, strict=True)), 0.0 * x[t, :D]))
            for e, w in zip(mine, alpha, strict=True):
                weights[e, h] = w.detach()
        rows.append(layer.out_proj(torch.cat(row)))
    return torch.stack(rows), weights


def near(found, wanted):
    found, wanted = found.detach(), wanted.detach()
    size = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
    assert float((found - wanted).abs().max()) <= 1e-12 * size


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("score", "normalize"),
    [(score, "softmax") for score in SCORES]
    + [
        (score, name)
        for score in ("scaled_dot", "mlp")
        for name in NORMALIZERS
        if name != "softmax"
    ],
)
def test_the_layer_is_its_formulas(score, normalize):
    made = torch.Generator().manual_seed(7)
    cases = (
        (F, GRAPH, 1.3, True),
        (None, ga.PerHead([GRAPH, OTHER]), 0.8, True),
        (None, GRAPH, None, False),
        (F, ga.PerHead([OTHER, GRAPH]), None, False),
    )
    for edge_dim, graph, softcap, biased in cases[
        : 2 if score == "mlp" and normalize != "softmax" else 4
    ]:
        torch.manual_seed(3)
        options = {"score": score, "normalize": normalize, "edge_dim": edge_dim, "softcap": softcap}
        layer = GraphAttention(C, H, head_dim=D, num_kv_heads=KV, **options).double()
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5, generator=made)
        x = torch.randn(7, C, generator=made, dtype=torch.float64, requires_grad=True)
        bias, attr = None, None
        if biased:
            bias = torch.randn(
                graph.num_edges, H, generator=made, dtype=torch.float64
            ).requires_grad_()
        if edge_dim is not None:
            attr = torch.randn(
                graph.num_edges, F, generator=made, dtype=torch.float64
            ).requires_grad_()
        wanted, alpha = formula(layer, score, normalize, x, graph, attr, bias, softcap)
        found, weights = layer(x, graph, edge_attr=attr, score_bias=bias, return_weights=True)
        near(weights.alpha, alpha)
        near(found, wanted)
        near(layer(x, graph, edge_attr=attr, score_bias=bias), wanted)
        leaves = [leaf for leaf in (x, attr, bias, *layer.parameters()) if leaf is not None]
        mine, theirs = (
            torch.autograd.grad(output.square().sum(), leaves, materialize_grads=True)
            for output in (found, wanted)
        )
        size = max(float(grad.abs().max()) for grad in theirs)
        for one, other in zip(mine, theirs, strict=True):
            near(one / size, other / size)

"""A Swin layer is a set of disjoint cliques: no roll, no window partition, no mask of -100."""

import networkx as nx
import torch

import graphattn as ga

torch.manual_seed(0)
height, width, cell, shift = 8, 12, 4, 2
heads, depth = 2, 5

graph = ga.graphs.window_partition((height, width), cell=(cell, cell), shift=(shift, shift))
cliques = list(nx.connected_components(ga.convert.to_networkx(graph).to_undirected()))
print(f"{graph!r}\n{len(cliques)} cliques of sizes {sorted({len(clique) for clique in cliques})}")
assert graph.num_edges == sum(len(clique) ** 2 for clique in cliques)


def swin(x: torch.Tensor) -> torch.Tensor:
    """Shifted-window attention as written in the paper's code: roll, partition, mask, attend,
    undo.
    """
    region = torch.zeros(height, width)
    parts = (slice(0, -cell), slice(-cell, -shift), slice(-shift, None))
    for i, rows in enumerate(parts):
        for j, columns in enumerate(parts):
            region[rows, columns] = 3 * i + j

    # (height, width, F) -> (windows, cell * cell, F)
    def partition(image: torch.Tensor) -> torch.Tensor:
        image = image.reshape(height // cell, cell, width // cell, cell, -1)
        return image.transpose(1, 2).reshape(-1, cell * cell, image.shape[-1])

    region = partition(region[..., None]).squeeze(-1)
    mask = torch.where(region[:, :, None] == region[:, None, :], 0.0, -100.0)[:, None]
    rolled = torch.roll(x.reshape(height, width, -1), (-shift, -shift), (0, 1))
    windows = partition(rolled).unflatten(-1, (heads, depth)).transpose(1, 2)
    out = torch.nn.functional.scaled_dot_product_attention(
        windows, windows, windows, attn_mask=mask
    )
    out = out.transpose(1, 2).reshape(height // cell, width // cell, cell, cell, -1).transpose(1, 2)
    return torch.roll(out.reshape(height, width, -1), (shift, shift), (0, 1)).reshape(
        -1, heads, depth
    )


x = torch.randn(height * width, heads, depth)
difference = (ga.attention(x, x, x, graph) - swin(x)).abs().max().item()
print(f"largest difference from roll + partition + mask: {difference:.1e}")
assert difference < 1e-6

"""Whole models, and the same models with another's attention in the place of ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pairs import Call, Pair, step
from shapes import points
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from graphattn import AttentionGraph, patch
from graphattn.graphs import (
    causal,
    hierarchy,
    mesh_vertices,
    serialized_hierarchy,
    voxel_downsample,
)
from graphattn.models import MeshTransformer, PointTransformerV3, Swin, UNet
from graphattn.nn import GraphAttention
from graphattn.shapes import icosphere_mesh


class PyGAttention(nn.Module):
    """PyG's ``TransformerConv`` with the parameters of a layer."""

    def __init__(self, layer: GraphAttention) -> None:
        from torch_geometric.nn import TransformerConv

        super().__init__()
        wide, size = layer.num_heads * layer.head_dim, layer.head_dim
        sources, targets = layer.k_proj.in_features, layer.q_proj.in_features
        options = {"edge_dim": layer.edge_dim, "root_weight": False}
        self.conv = TransformerConv((sources, targets), size, layer.num_heads, **options)
        self.conv.lin_query = layer.q_proj
        self.conv.lin_key = layer.k_proj
        self.conv.lin_value = layer.v_proj
        self.conv.lin_edge = layer.edge_proj
        self.out_proj = layer.out_proj
        assert wide == layer.v_proj.out_features

    def forward(
        self,
        x: Tensor,
        graph: AttentionGraph,
        context: Tensor | None = None,
        edge_attr: Tensor | None = None,
        **rest: Any,
    ) -> Tensor:
        sources = x if context is None else context
        return self.out_proj(self.conv((sources, x), graph.edge_index, edge_attr))


class PatchAttention(nn.Module):
    """SDPA in patches of a serialised cloud, as Pointcept's ``SerializedAttention``: gather the
    patches, attend, scatter.
    """

    def __init__(self, layer: GraphAttention) -> None:
        super().__init__()
        self.layer, self.rotary = layer, None
        self.patches: dict[AttentionGraph, tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor, graph: AttentionGraph, **rest: Any) -> Tensor:
        if graph not in self.patches:
            self.patches[graph] = _patches(graph)
        order, place = self.patches[graph]
        layer = self.layer
        heads = (
            projection(x)[order].unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
            for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        mixed = scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)  # (P, k, C)
        return layer.out_proj(mixed.flatten(0, 1)[place])


def _patches(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    """The nodes (P, k) of the patches, and where among them each node reads its own patch."""
    by_target = graph.source[graph.target.argsort(stable=True)].view(graph.num_targets, -1)
    order, patch_of = by_target.sort(1).values.unique(dim=0, return_inverse=True)
    place = torch.searchsorted(order[patch_of], torch.arange(graph.num_targets)[:, None])
    return order, patch_of * order.shape[1] + place.squeeze(1)


def exchanged(model: nn.Module, attention: Callable[[GraphAttention], nn.Module]) -> nn.Module:
    """The model, with another module in the place of each layer of attention."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, GraphAttention):
                setattr(parent, name, attention(child))
    return model


def _beside(
    make: Callable[[], nn.Module], inputs: Any, attention: Callable[[GraphAttention], nn.Module]
) -> tuple[Call, Call]:
    """A training step of a model, and of the same with another attention, whose outputs agree."""
    torch.manual_seed(0)
    ours = make()
    torch.manual_seed(0)
    theirs = exchanged(make(), attention)
    torch.testing.assert_close(ours(*inputs), theirs(*inputs), atol=1e-4, rtol=1e-4)
    return _steps(ours, theirs, *inputs)


def _steps(ours: nn.Module, theirs: nn.Module, *inputs: Any) -> tuple[Call, Call]:
    """A training step of each."""
    calls = []
    for model in (ours, theirs):
        loss = model(*inputs).sum()
        loss.backward()
        used = [p for p in model.parameters() if p.grad is not None]
        calls.append(step(lambda *_, m=model: m(*inputs), *used))
    return calls[0], calls[1]


def _unet() -> tuple[Call, Call]:
    pos = points(8 * 1_024)
    batch = torch.arange(8).repeat_interleave(1_024)
    shape = hierarchy(pos, batch, ratio=(0.25, 0.25))
    return _beside(partial(UNet, 3, 8, axes=3), (pos, shape), PyGAttention)


def _mesh() -> tuple[Call, Call]:
    pos, faces = icosphere_mesh(5)
    pos = pos.float()
    shape = hierarchy(pos, graph=mesh_vertices(faces), faces=faces)
    return _beside(
        partial(MeshTransformer, 3, 8, spectrum=0, edges=("distance",)), (pos, shape), PyGAttention
    )


def _ptv3() -> tuple[Call, Call]:
    pos = points(16_384)
    pos = pos[voxel_downsample(pos, 0.02).kept]
    shape = serialized_hierarchy(pos, cell=0.02, levels=3, patch=256)
    make = partial(PointTransformerV3, 3, 8, (32, 64, 128), 2, (64, 64), 2)
    return _beside(make, (pos, shape), PatchAttention)


def _swin() -> tuple[Call, Call]:
    from timm.models import swin_tiny_patch4_window7_224

    ours = Swin(num_classes=1_000)
    theirs = swin_tiny_patch4_window7_224(drop_path_rate=0.0)
    assert _size(ours) == _size(theirs)
    return _steps(ours, theirs, torch.randn(2, 3, 224, 224))


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _gpt2(length: int, train: bool) -> tuple[Call, Call]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_embd=256, n_head=8, vocab_size=1_000, n_positions=length)
    calls = []
    ids = torch.randint(1_000, (4, length))
    for ours in (True, False):
        model = GPT2LMHeadModel(config).eval()
        if ours:
            patch(model, causal(...))
        if train:
            calls.append(step(lambda *_, m=model: m(ids, labels=ids).loss, *model.parameters()))
        else:
            calls.append(partial(_without_gradients, model, ids))
    return calls[0], calls[1]


@torch.no_grad()
def _without_gradients(model: nn.Module, ids: Tensor) -> Any:
    return model(ids, use_cache=False)


_WIDE = "4 layers, width 256, 8 heads, 4 rows"
#: Pairs by name.
MODELS = {
    "GPT-2, no gradient": Pair(
        f"patched with causal(...) over its own SDPA, {_WIDE} of 512", partial(_gpt2, 512, False)
    ),
    "GPT-2, a training step": Pair(
        f"patched with causal(...) over its own SDPA, {_WIDE} of 512", partial(_gpt2, 512, True)
    ),
    "Swin": Pair("a training step over timm's swin_tiny, 2 images of 224 x 224", _swin),
    "Point Transformer V3": Pair(
        "a training step over SDPA in gathered patches, 16,384 points, 3 levels, patches of 256",
        _ptv3,
    ),
    "U-Net": Pair(
        "a training step over PyG's TransformerConv in its place, 8 clouds of 1,024 points", _unet
    ),
    "mesh transformer": Pair(
        "a training step over PyG's TransformerConv in its place, icosphere of 10,242 vertices",
        _mesh,
    ),
}

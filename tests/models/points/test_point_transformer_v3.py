"""Point Transformer V3 and LitePT with their names against their forward in plain torch, on dense
grids and patch by patch.
"""

import pytest
import torch
from torch.nn import functional as F

from graphattn import models
from graphattn.errors import GraphError, LoaderError
from graphattn.graphs import serialized_hierarchy
from graphattn.nn import CellConv

HEAD, PATCH, ORDERS = 16, 8, ("z", "z-trans")


def norm_of(name, width, batch):
    made = {f"{name}.weight": torch.randn(width), f"{name}.bias": torch.randn(width)}
    if batch:
        made |= {
            f"{name}.running_mean": torch.randn(width),
            f"{name}.running_var": torch.rand(width) + 0.5,
        }
        made[f"{name}.num_batches_tracked"] = torch.tensor(3)
    return made


def linear(name, before, after):
    return {
        f"{name}.weight": torch.randn(after, before) * before**-0.5,
        f"{name}.bias": torch.randn(after),
    }


def block_of(name, C, scaled):
    made = {
        f"{name}.cpe.0.weight": torch.randn(C, 3, 3, 3, C) * 0.05,
        f"{name}.cpe.0.bias": torch.randn(C),
    }
    made |= linear(f"{name}.cpe.1", C, C) | norm_of(f"{name}.cpe.2", C, False)
    made |= norm_of(f"{name}.norm1.0", C, False) | norm_of(f"{name}.norm2.0", C, False)
    made |= linear(f"{name}.attn.qkv", C, 3 * C) | linear(f"{name}.attn.proj", C, C)
    made |= linear(f"{name}.mlp.0.fc1", C, 4 * C) | linear(f"{name}.mlp.0.fc2", 4 * C, C)
    return made | {f"{name}.ls{i}.0.gamma": torch.randn(C) for i in (1, 2) if scaled}


def state_of(sonata):
    """A state dict with the names and shapes of Pointcept's model, or of Sonata's encoder."""
    torch.manual_seed(0)
    batch, C = not sonata, (32, 48)
    if sonata:
        made = linear("embedding.stem.linear", 5, C[0]) | {
            "embedding.mask_token": torch.zeros(1, C[0])
        }
    else:
        made = {"embedding.stem.conv.weight": torch.randn(C[0], 5, 5, 5, 5) * 0.1}
    made |= norm_of("embedding.stem.norm", C[0], batch)
    for stage, depth in enumerate((2, 1)):
        if stage:
            down = f"enc.enc{stage}.down"
            made |= linear(f"{down}.proj", C[0], C[1]) | norm_of(f"{down}.norm.0", C[1], batch)
        for i in range(depth):
            made |= block_of(f"enc.enc{stage}.block{i}", C[stage], sonata)
    if not sonata:
        made |= linear("dec.dec0.up.proj.0", C[1], 64) | norm_of("dec.dec0.up.proj.1", 64, True)
        made |= linear("dec.dec0.up.proj_skip.0", C[0], 64) | norm_of(
            "dec.dec0.up.proj_skip.1", 64, True
        )
        made |= block_of("dec.dec0.block0", 64, False) | linear("seg_head", 64, 7)
    return {name: x.double() if x.is_floating_point() else x for name, x in made.items()}


def state_of_litept():
    """A state dict with the names and shapes of LitePT: convolutions on the fine level, attention
    on the coarse one.
    """
    torch.manual_seed(0)
    C = (36, 54)
    made = {"embedding.stem.conv.weight": torch.randn(C[0], 5, 5, 5, 5) * 0.1} | norm_of(
        "embedding.stem.norm", C[0], True
    )
    for i in (0, 1):
        conv = {
            name: x
            for name, x in block_of(f"enc.enc0.block{i}", C[0], False).items()
            if ".cpe." in name
        }
        made |= {name.replace(".cpe.", ".conv."): x for name, x in conv.items()}
    made |= linear("enc.enc1.down.proj", *C) | norm_of("enc.enc1.down.norm.0", C[1], True)
    own = {
        name: x
        for name, x in block_of("enc.enc1.block0", C[1], False).items()
        if ".cpe." not in name
    }
    made |= own | norm_of("enc.enc1.block0.norm0.0", C[1], False)
    made |= linear("dec.dec0.up.proj.0", C[1], 72) | norm_of("dec.dec0.up.proj.1", 72, True)
    made |= linear("dec.dec0.up.proj_skip.0", C[0], 72) | norm_of(
        "dec.dec0.up.proj_skip.1", 72, True
    )
    return {name: x.double() if x.is_floating_point() else x for name, x in made.items()}


class Twin:
    """The forward of the published code, for clouds one by one; with ``base`` of LitePT's rotary
    positions.
    """

    def __init__(self, state, head=HEAD, base=None):
        self.state, self.head, self.base = state, head, base

    def linear(self, name, x):
        return F.linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name, x):
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        if f"{name}.running_mean" not in self.state:
            return F.layer_norm(x, x.shape[-1:], weight, bias)
        stored = self.state[f"{name}.running_mean"], self.state[f"{name}.running_var"]
        return F.batch_norm(x, *stored, weight, bias, eps=1e-3)

    def conv(self, name, x, grid):
        """On all cells of a box, empty ones with zeros; the outputs of those that are there."""
        kernel = self.state[f"{name}.weight"].permute(0, 4, 1, 2, 3)
        box = x.new_zeros(x.shape[1], *(grid.amax(0) + 1).tolist())
        box[:, grid[:, 0], grid[:, 1], grid[:, 2]] = x.T
        full = F.conv3d(
            box[None], kernel, self.state.get(f"{name}.bias"), padding=kernel.shape[-1] // 2
        )[0]
        return full[:, grid[:, 0], grid[:, 1], grid[:, 2]].T

    def attention(self, name, x, grid, order):
        q, k, v = self.linear(f"{name}.qkv", x).view(len(x), 3, -1, self.head).unbind(1)
        if self.base is not None:
            q, k = (self.turned(x, grid) for x in (q, k))
        rank = sorted(range(len(x)), key=lambda i: code(grid[i].tolist(), order))
        n, size = len(x), min(PATCH, len(x))
        out = torch.zeros_like(q)
        for start in range(0, n, size):
            own = torch.tensor(rank[start : start + size])
            read = torch.tensor(
                rank[start : start + size] if start + size <= n else rank[n - size :]
            )
            weights = (torch.einsum("thd,shd->hts", q[own], k[read]) * self.head**-0.5).softmax(-1)
            out[own] = torch.einsum("hts,shd->thd", weights, v[read])
        return self.linear(f"{name}.proj", out.flatten(1))

    def turned(self, x, grid):
        """A third of the channels by each axis, its first half paired with its second."""
        width = self.head // 3
        angle = grid[:, :, None].double() * self.base ** (
            -torch.arange(0, width, 2).double() / width
        )
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x.unflatten(-1, (3, width)).chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)

    def block(self, name, x, grid, number):
        conv = next(
            (word for word in ("cpe", "conv") if f"{name}.{word}.0.weight" in self.state), None
        )
        if conv is None:
            x = self.norm(f"{name}.norm0.0", x)
        else:
            made = self.linear(f"{name}.{conv}.1", self.conv(f"{name}.{conv}.0", x, grid))
            x = x + self.norm(f"{name}.{conv}.2", made)
        if f"{name}.attn.qkv.weight" not in self.state:
            return x
        gamma = [self.state.get(f"{name}.ls{i}.0.gamma", 1.0) for i in (1, 2)]
        order = ORDERS[number % len(ORDERS)]
        x = x + gamma[0] * self.attention(
            f"{name}.attn", self.norm(f"{name}.norm1.0", x), grid, order
        )
        inner = F.gelu(self.linear(f"{name}.mlp.0.fc1", self.norm(f"{name}.norm2.0", x)))
        return x + gamma[1] * self.linear(f"{name}.mlp.0.fc2", inner)

    def __call__(self, x, grid):
        """Features of both levels, and the answers of the finest points where there is a way up."""
        conv = "embedding.stem.conv.weight" in self.state
        x = (
            self.conv("embedding.stem.conv", x, grid)
            if conv
            else self.linear("embedding.stem.linear", x)
        )
        x = F.gelu(self.norm("embedding.stem.norm", x))
        for i in (0, 1):
            x = self.block(f"enc.enc0.block{i}", x, grid, i)
        wide, cell = torch.unique(grid // 2, dim=0, return_inverse=True)
        y = self.linear("enc.enc1.down.proj", x)
        y = torch.stack([y[cell == number].amax(0) for number in range(len(wide))])
        y = self.block("enc.enc1.block0", F.gelu(self.norm("enc.enc1.down.norm.0", y)), wide, 0)
        if "dec.dec0.up.proj.0.weight" not in self.state:
            return x, y, None
        up = F.gelu(self.norm("dec.dec0.up.proj.1", self.linear("dec.dec0.up.proj.0", y)))[cell]
        own = F.gelu(
            self.norm("dec.dec0.up.proj_skip.1", self.linear("dec.dec0.up.proj_skip.0", x))
        )
        if "seg_head.weight" not in self.state:
            return x, y, own + up
        return x, y, self.linear("seg_head", self.block("dec.dec0.block0", own + up, grid, 0))


def code(cell, order):
    """Bits of x, y and z in turn, the highest first."""
    x, y, z = cell if order == "z" else (cell[1], cell[0], cell[2])
    return int(
        "".join(f"{a}{b}{c}" for a, b, c in zip(f"{x:06b}", f"{y:06b}", f"{z:06b}", strict=True)), 2
    )


def clouds():
    random = torch.Generator().manual_seed(1)
    cells = [torch.unique(torch.randint(0, 6, (n, 3), generator=random), dim=0) for n in (60, 5)]
    cells = [part[torch.randperm(len(part), generator=random)] for part in cells]
    batch = torch.arange(2).repeat_interleave(torch.tensor([len(part) for part in cells]))
    return (
        torch.cat(cells),
        batch,
        torch.randn(len(batch), 5, generator=random, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", ["Pointcept", "Sonata", "LitePT"])
def test_weights_of_published_models_give_their_outputs(name):
    sonata, options = (
        name == "Sonata",
        {"head_dim": 18, "rotary": 100.0} if name == "LitePT" else {},
    )
    state, (grid, batch, x) = state_of(sonata) if not options else state_of_litept(), clouds()
    given = {f"module.backbone.{key}": t for key, t in state.items()}
    model = models.PointTransformerV3.from_pointcept(given, **options).eval()
    shape = serialized_hierarchy(
        grid.double(), batch, cells=grid, levels=2, patch=PATCH, curves=ORDERS
    )
    fine, coarse = model.encoded(x, shape)
    answer = model(x, shape)
    for cloud in (0, 1):
        own, wide = batch == cloud, shape.levels[1].batch == cloud
        wanted = Twin(state, *options.values())(x[own], grid[own])
        torch.testing.assert_close(fine[own], wanted[0], rtol=0, atol=1e-9)
        place = (
            shape.levels[1].down.mask()[wide][:, own].double() @ (grid[own] // 2).double()
        ).div(shape.levels[1].down.mask()[wide].sum(1, keepdim=True))
        order = torch.argsort(torch.argsort(place @ torch.tensor([100.0, 10.0, 1.0]).double()))
        torch.testing.assert_close(coarse[wide], wanted[1][order], rtol=0, atol=1e-9)
        if sonata:
            torch.testing.assert_close(answer[cloud], wanted[1].mean(0), rtol=0, atol=1e-9)
        else:
            torch.testing.assert_close(answer[own], wanted[2], rtol=0, atol=1e-9)


def test_a_convolution_of_cells_is_one_of_the_grid_in_any_order_and_batch():
    grid, batch, x = clouds()
    conv = CellConv(5, 4, 3).double()
    shape = serialized_hierarchy(grid.double(), batch, cells=grid, levels=1)
    state = {"a.weight": conv.weight.unflatten(0, (3, 3, 3)).movedim(3, 0), "a.bias": conv.bias}
    wanted = torch.cat(
        [Twin(state).conv("a", x[batch == cloud], grid[batch == cloud]) for cloud in (0, 1)]
    )
    torch.testing.assert_close(conv(x, shape.levels[0].near[0]), wanted)
    small = serialized_hierarchy(grid[:4].double(), cells=grid[:4], levels=1).levels[0].near[0]
    assert torch.autograd.gradcheck(lambda y: conv(y, small), x[:4].clone().requires_grad_())


def test_what_is_no_such_state_is_refused():
    state = state_of(True)
    read = models.PointTransformerV3.from_pointcept
    with pytest.raises(LoaderError, match=r"that the model lacks: enc\.enc0\.block0\.attn\.rpe"):
        read(state | {"enc.enc0.block0.attn.rpe.rpe_table": torch.zeros(3)})
    with pytest.raises(
        LoaderError, match=r"must have .levels\.stages\.1\.0\.block\.attention\.q_proj\.bias."
    ):
        read({name: x for name, x in state.items() if name != "enc.enc1.block0.attn.qkv.bias"})
    with pytest.raises(LoaderError, match=r"must have keys enc\.enc0"):
        read({"weight": torch.zeros(3)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda pos: serialized_hierarchy(pos, cell=9.0), "two points share a cell"),
        (lambda pos: serialized_hierarchy(pos), "pass either cell, the side"),
        (lambda pos: serialized_hierarchy(pos, cell=1e-3, stride=3), "stride must be a power of 2"),
        (lambda pos: serialized_hierarchy(pos, cell=1e-3, bits=2), "bits=2 allows cells up to 3"),
        (lambda pos: serialized_hierarchy(pos, cells=torch.zeros(3, 3)), "cells must be integers"),
        (
            lambda pos: CellConv(3, 4, 5)(
                pos, serialized_hierarchy(pos, cell=1e-3).levels[0].near[0]
            ),
            "of 125 offsets",
        ),
    ],
)
def test_refusals(make, message):
    pos = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(GraphError, match=message):
        make(pos)

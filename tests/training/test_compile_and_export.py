"""Every model is one program for torch.compile, is exported, and makes its plans from real tensors
whoever asks.
"""

import io

import pytest
import torch
from every_model import MODELS, RECURRENT, same, small
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from graphattn import disjoint_union, graphs
from graphattn.models import GraphTransformer
from graphattn.nn import FeatureScore, GraphAttention, TransformerBlock, graph_attention

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


def counted(module, programs, **options):
    return torch.compile(
        module, backend=lambda program, _: programs.append(program) or program, **options
    )


def drawn(module, inputs):
    torch.manual_seed(1)
    return module(*inputs)


AS_OTHERS = (
    *("gpt2", "gpt", "cliptext", "bert"),
    *("encoder_decoder", "vit", "vivit", "retrieve"),
)
ONE_PROGRAM = [name for name in MODELS if name not in (*RECURRENT, *AS_OTHERS, "longformer")]


@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_a_model_is_one_program(name):
    (model, inputs), programs = small(name, dropout=0.2), []
    compiled = counted(model, programs, fullgraph=True)
    found = drawn(compiled, inputs)  # before the plain one: nothing is made yet
    same(found, drawn(model, inputs))
    compiled(*inputs)
    assert len(programs) == 1


def test_one_program_serves_every_batch():
    (model, _), programs = small("gpt2"), []
    compiled = counted(model, programs, fullgraph=True)
    for batch in (2, 3, 5):
        tokens = torch.randint(11, (batch, 7))
        same(compiled(tokens), model(tokens))
    assert len(programs) == 2  # of the first batch, then of any


def test_batches_of_graphs_in_pieces():
    """What is made of new graphs (eigenvectors, by scipy) is not followed."""
    model = GraphTransformer(
        5, 8, 2, 1, encoding="laplacian", encoding_dim=3, max_distance=3, readout="sum"
    ).eval()
    compiled = torch.compile(model, backend="eager")
    for size in (5, 6):
        edges = disjoint_union([graphs.circulant(n, (1, n - 1)) for n in (size, 7)])
        batch, x = (
            torch.arange(2).repeat_interleave(torch.tensor([size, 7])),
            torch.randn(size + 7, 5),
        )
        same(compiled(x, edges, batch=batch), model(x, edges, batch=batch))


def test_recurrent_models_are_right_in_pieces_and_whole_where_torch_follows_them():
    for name, whole in (("luong", True), ("seq2seq", False)):
        torch._dynamo.reset()
        (model, (source, target)), programs = small(name), []
        source, target = source[:, :3], target[:, :2]
        with torch._dynamo.config.patch(allow_rnn=whole):
            found = counted(model, programs, fullgraph=whole)(source, target)
        same(found, model(source, target))
        assert (len(programs) == 1) is whole


def test_gradients_of_a_block_by_aot_autograd():
    torch.manual_seed(0)
    block = TransformerBlock(
        8, 2, norm_first=False, dropout=0.3, drop_path=0.3, activation="gated_silu"
    )
    x, results = torch.randn(5, 7, 8), []
    for module in (torch.compile(block, backend="aot_eager", fullgraph=True), block):
        output = drawn(module, (x, graphs.sliding_window(..., 3, causal=True)))
        results.append(
            [output, *torch.autograd.grad(output.square().sum(), list(block.parameters()))]
        )
    for found, wanted in zip(*results, strict=True):
        same(found, wanted)


def test_linear_attention_stays_linear(monkeypatch):
    """Every other way goes through ``run``."""
    monkeypatch.setattr(graph_attention, "run", None)
    layer, x = GraphAttention(8, 2, score=FeatureScore(), normalize="sum"), torch.randn(2, 300, 8)
    same(torch.compile(layer, backend="eager")(x, graphs.causal(...)), layer(x, graphs.causal(...)))


@pytest.mark.parametrize("name", ["llama", "luong"])
def test_a_model_is_exported_for_any_batch(name):
    model, inputs = small(name, batch=3)
    shapes = tuple({0: torch.export.Dim("batch", min=2, max=64)} for _ in inputs)
    program = torch.export.export(model.eval(), inputs, strict=False, dynamic_shapes=shapes)
    if name == "llama":
        file = io.BytesIO()
        torch.export.save(program, file)
        program = torch.export.load(io.BytesIO(file.getvalue()))
    more = tuple(torch.cat((x, x[:2])) for x in inputs)
    same(program.module()(*more), model(*more))


def test_the_first_call_may_have_fake_tensors_or_another_default_device():
    """Its plans are of real tensors on the graph's own device, and serve the calls that follow."""
    for name in [name for name in MODELS if name not in AS_OTHERS]:
        model, inputs = small(name)
        with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
            shape = model(*(mode.from_tensor(x, static_shapes=True) for x in inputs)).shape
        wanted = model(*inputs)
        assert wanted.shape == shape, name
        model, _ = small(name)
        torch.set_default_device("meta")
        try:
            found = model(*inputs)
        finally:
            torch.set_default_device(None)
        same(found, wanted)


def test_a_model_of_shapes_is_exported_for_one_of_them():
    from graphattn.training.models.named import build

    pos = torch.rand(60, 3)
    shape = graphs.hierarchy(pos, ratio=0.25, normals=torch.nn.functional.normalize(pos, dim=1))
    for readout in ("node", "shape"):
        model = build(
            "unet", {"widths": [8, 8], "num_heads": 2, "depths": [1, 1]}, 3, 2, readout
        ).eval()

        class OfOne(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(x, shape)

        program, x = torch.export.export(OfOne(model), (pos,), strict=False), torch.rand(60, 3)
        same(program.module()(x), model(x, shape))
        assert {node.target for node in program.graph.nodes} >= {
            torch.ops.graphattn.edge_attention.default
        }

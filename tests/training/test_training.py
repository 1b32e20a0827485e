"""What a training loop does to every model: half precision, checkpoints of activations and of
weights, resuming.
"""

import ast
import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from every_model import MODELS, RECURRENT, TIED, C, H, same, small
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphattn import graphs, models
from graphattn.backends import BACKENDS
from graphattn.nn import GraphAttention, TransformerBlock


def learned(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def bits(x):
    return [each.clone() for each in x]


def equal(found, wanted):
    return all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpointed_blocks_have_the_same_bits_and_keep_less(backend):
    torch.manual_seed(0)
    blocks = [
        TransformerBlock(C, H, dropout=0.2, drop_path=0.3, norm_first=n, backend=backend)
        for n in (True, False)
    ]
    graph = graphs.sliding_window(13, 5, causal=True) | graphs.global_tokens(13, (0,))
    x = torch.randn(3, 13, C, requires_grad=True)
    parameters = [x, *(p for block in blocks for p in block.parameters())]
    results, kept = [], []

    def run(reentrant):
        y = x
        for block in blocks:
            y = (
                block(y, graph)
                if reentrant is None
                else checkpoint(block, y, graph, use_reentrant=reentrant)
            )
        return y

    for reentrant in (None, False, True):
        torch.manual_seed(1)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, to=saved: to.append(t.numel()) or t, lambda t: t
        ):
            output = run(reentrant)
        for parameter in parameters:
            parameter.grad = None
        output.square().sum().backward()
        results.append(
            bits([output, *(parameter.grad for parameter in parameters), torch.get_rng_state()])
        )
        kept.append(sum(saved))
    assert equal(results[0], results[1])
    assert equal(results[0], results[2])
    assert max(kept[1:]) < kept[0] / 10


def test_every_class_of_models_that_learns_is_in_the_table():
    made = {type(part) for name in MODELS for part in small(name)[0].modules()}
    classes = {
        each
        for each in vars(models).values()
        if isinstance(each, type) and issubclass(each, nn.Module)
    }
    assert classes - made == {models.Hopfield}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_half_precision(dtype):
    for name in MODELS if dtype == torch.bfloat16 else ("llama", "t5", "swin", "luong"):
        model, inputs = small(name)
        wanted = model(*inputs).detach()
        with torch.autocast("cpu", dtype):
            found = model(*inputs)
        assert found.dtype in (dtype, torch.float32), name
        found.float().square().sum().backward()
        for parameter in learned(model):
            assert parameter.grad.dtype == torch.float32, name
            assert parameter.grad.isfinite().all(), name
        narrow = model.to(dtype)(*(x.to(dtype) if x.is_floating_point() else x for x in inputs))
        assert narrow.dtype == dtype, name
        # it norms small differences, which magnifies their rounding
        rough = 4 if name == "pct" else 1
        for each in (found, narrow):
            same(each.float(), wanted, rough * (0.05 if dtype == torch.bfloat16 else 0.01))


@pytest.mark.slow
def test_dropout_is_of_training_alone():
    for name in MODELS:
        model, inputs = small(name, dropout=0.5)
        draws = [model(*inputs) for _ in range(2)]
        without = (*RECURRENT, "retrieve", "meshgraphnet")
        assert torch.equal(*draws) is (name in without), name
        model.eval()
        assert torch.equal(model(*inputs), model(*inputs)), name


@pytest.mark.slow
def test_weights_travel_as_safetensors(tmp_path):
    """Strictly, and tied weights stay one: ``save_file`` refuses those, ``save_model`` writes them
    once.
    """
    safetensors = pytest.importorskip("safetensors.torch")
    for name in MODELS:
        model, inputs = small(name)
        file = tmp_path / name
        if name in TIED:
            with pytest.raises(RuntimeError, match="share memory"):
                safetensors.save_file(model.state_dict(), file)
        else:
            safetensors.save_file(model.state_dict(), file)
        safetensors.save_model(model, file)
        torch.manual_seed(9)
        other = MODELS[name][0](0.0)
        assert not torch.equal(other(*inputs), model(*inputs)), name
        missing, unexpected = safetensors.load_model(other, file)
        assert not missing, name
        assert not unexpected, name
        assert equal([other(*inputs)], [model(*inputs)]), name
        assert len(list(other.parameters())) == len(list(model.parameters())), name


@pytest.mark.slow
def test_models_are_made_on_meta_and_filled():
    for name in MODELS:
        model, inputs = small(name)
        with torch.device("meta"):
            empty, other = (MODELS[name][0](0.0) for _ in range(2))
        empty.to_empty(device="cpu")
        empty.load_state_dict(model.state_dict())
        other.load_state_dict(model.state_dict(), assign=True)
        if name == "gpt":
            # it holds no weight, and so no state that could bring it
            other.score_bias.to_empty(device="cpu")
        for filled in (empty, other):
            assert torch.equal(filled(*inputs), model(*inputs)), name
            if name in TIED:  # torch parts them, both ways
                filled.head.tie(filled.embedding) if name == "bert" else filled.tie()
                assert filled.get_parameter(TIED[name]) is filled.embedding.weight
            assert len(list(filled.parameters())) == len(list(model.parameters())), name


def test_derivatives_of_every_example_by_torch_func():
    for name in ("llama", "t5", "swin"):
        model, inputs = small(name, batch=3)
        model.double()
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
        weights = {key: value.detach() for key, value in model.named_parameters()}

        def loss(weights, *inputs, model=model):
            one = tuple(x.unsqueeze(0) for x in inputs)
            return torch.func.functional_call(model, weights, one).square().sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, *(0,) * len(inputs)))(weights, *inputs)
        wanted = torch.autograd.grad(model(*inputs).square().sum(), list(model.parameters()))
        for found, whole in zip(each.values(), wanted, strict=True):
            assert found.shape == (3, *whole.shape)
            torch.testing.assert_close(found.sum(0), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_other_dtypes_modes_hooks_and_parametrizations():
    torch.set_default_dtype(torch.float64)
    try:
        for name in MODELS:
            model, inputs = small(name)
            output = model(*inputs)
            tensors = [output, *model.parameters(), *model.buffers()]
            assert {x.dtype for x in tensors if x.is_floating_point()} == {torch.float64}, name
            with torch.inference_mode():
                same(model(*inputs), output.detach(), 1e-12)
    finally:
        torch.set_default_dtype(torch.float32)
    layer, x, graph, seen = (
        GraphAttention(C, H),
        torch.randn(2, 5, C, requires_grad=True),
        graphs.causal(...),
        [],
    )
    wanted = layer(x, graph)
    nn.utils.parametrizations.weight_norm(layer.q_proj)
    layer.register_forward_hook(lambda module, given, output: seen.append(output.shape))
    layer.register_full_backward_hook(lambda module, found, given: seen.append(given[0].shape))
    found = layer(x, graph)
    found.sum().backward()
    same(found, wanted)
    assert seen == [(2, 5, C)] * 2
    assert layer.q_proj.parametrizations.weight.original1.grad.abs().sum() > 0


EXAMPLE = Path(__file__).parents[2] / "examples" / "13_a_language_model_on_any_causal_graph.py"


def functions_of_the_example(*names):
    """Its functions alone: the script itself trains."""
    tree = ast.parse(EXAMPLE.read_text("utf-8"))
    tree.body = [
        x
        for x in tree.body
        if isinstance(x, ast.Import | ast.ImportFrom) or getattr(x, "name", "") in names
    ]
    space = {}
    exec(compile(tree, str(EXAMPLE), "exec"), space)
    return [space[name] for name in names]


def test_training_that_was_interrupted_goes_on_with_the_same_bits(tmp_path):
    pytest.importorskip("safetensors")
    save, resume = functions_of_the_example("save", "resume")

    def fresh():
        torch.manual_seed(0)
        model = models.GPT.gpt2(11, C, H, 1, max_len=9, dropout=0.2)
        return model, torch.optim.AdamW(model.parameters(), 1e-2), torch.Generator().manual_seed(5)

    def train(model, optimizer, made, first, last):
        for _ in range(first, last):
            tokens = torch.randint(11, (3, 7), generator=made)
            # dropout draws from what is saved
            torch.manual_seed(int(torch.randint(1 << 30, (), generator=made)))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()

    whole, half, other = fresh(), fresh(), fresh()
    train(*whole, 0, 6)
    train(*half, 0, 3)
    save(*half, 3, tmp_path / "file")
    torch.manual_seed(77)
    number = resume(*other, tmp_path / "file")
    train(*other, number, 6)
    for one, two in pairwise((whole, other)):
        assert equal(one[0].parameters(), two[0].parameters())
        states = [
            [x for kept in each[1].state_dict()["state"].values() for x in kept.values()]
            for each in (one, two)
        ]
        assert equal(*states)
    assert not equal(half[0].parameters(), whole[0].parameters())
    again = copy.deepcopy(half)
    again[0].load_state_dict(half[0].state_dict())
    # the same steps on other random numbers
    train(*again[:2], torch.Generator().manual_seed(5), 3, 6)
    assert not equal(again[0].parameters(), whole[0].parameters())

"""CLIP with the weights of transformers': both towers, their vectors and their scores; what the end token reads."""

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, PositionIndexError, ShapeError
from graphattn.models import CLIP, CLIPText, ViT, from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")
WIDTHS = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
TEXT = {**WIDTHS, "vocab_size": 17, "max_position_embeddings": 9, "pad_token_id": 1, "bos_token_id": 0}
IMAGE = {**WIDTHS, "image_size": 8, "patch_size": 4}
TOKENS = torch.tensor([[3, 5, 9, 16, 1, 1], [4, 16, 2, 7, 8, 1], [6, 7, 5, 3, 4, 16]])  # 16 is the end


def shaken(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def clip(eos=16, **options):
    torch.manual_seed(4)
    text, vision = {**TEXT, "eos_token_id": eos, **options}, {**IMAGE, **options}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=7)
    return shaken(transformers.CLIPModel._from_config(config, attn_implementation="sdpa"))


def tower(name, **options):
    torch.manual_seed(4)
    made, sizes = getattr(transformers, f"CLIP{name}Model"), TEXT if name == "Text" else IMAGE
    config = getattr(transformers, f"CLIP{name}Config")(**{**sizes, **options})
    return shaken(made._from_config(config, attn_implementation="sdpa"))


@pytest.fixture
def images():
    return torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"eos": 2}, {"hidden_act": "gelu", "layer_norm_eps": 0.1}], ids=str)
def test_scores_and_gradients(options, images):
    theirs, found = clip(**options), []
    mine, wanted = from_hf(theirs), theirs(input_ids=TOKENS, pixel_values=images)
    assert isinstance(mine, CLIP)
    for model, scores in ((mine, mine(images, TOKENS)), (theirs, wanted.logits_per_image)):
        given = torch.autograd.grad(scores.square().sum(), list(model.parameters()))
        found.append((scores, torch.cat([g.flatten() for g in given]).sort().values))
    close(found[0][0], found[1][0])
    assert found[0][1].abs().max() > 0.1
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-9, atol=1e-10)
    close(torch.nn.functional.normalize(mine.text(TOKENS), dim=-1), wanted.text_embeds)


def test_towers(images):
    theirs = tower("Vision")
    mine, wanted = from_hf(theirs), theirs(images)
    close(mine(images), wanted.last_hidden_state)
    close(mine.pooled(mine(images)), wanted.pooler_output)
    theirs = tower("Text", eos_token_id=16)
    mine, wanted = from_hf(theirs), theirs(TOKENS)
    close(mine(TOKENS), wanted.last_hidden_state)
    close(mine.pooled(mine(TOKENS), TOKENS), wanted.pooler_output)
    for whole, part in (("Vision", images), ("Text", TOKENS)):
        made = getattr(transformers, f"CLIP{whole}ModelWithProjection")
        theirs = shaken(made._from_config(tower(whole, projection_dim=7).config, attn_implementation="sdpa"))
        close(from_hf(theirs)(part), theirs(part)[0])
    assert from_hf(tower("Text", attention_dropout=0.25).train()).stack.layers[1].attention.dropout == 0.25


def test_the_end_token_depends_on_what_its_graph_reaches(images):
    mine = from_hf(clip())
    changed = TOKENS.clone()
    changed[0, 4:], changed[1, 2:] = 12, 13  # after the end
    assert torch.equal(mine(images, changed), mine(images, TOKENS))
    window = graphs.sliding_window(..., 2)
    changed = TOKENS.clone()
    changed[:, 0] = 11  # the ends are 3, 1 and 5 tokens on, and two layers of the window reach 2
    found = (mine(images, changed, None, window) - mine(images, TOKENS, None, window)).abs().amax(0) > 1e-9
    assert found.tolist() == [False, True, False]
    less = graphs.causal(6) - ga.from_edge_index([[0], [3]], num_nodes=6)
    found = (mine(images, TOKENS, None, [graphs.causal(...), less]) - mine(images, TOKENS)).abs().amax(0) > 1e-9
    assert found.tolist() == [True, False, False]  # the end of the first alone stands on node 3
    around = mine(images, TOKENS, graphs.grid_neighbourhood(..., 1))
    assert ((around - mine(images, TOKENS)).abs() > 1e-6).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: from_hf(clip(hidden_act="tanh")), OptionError, 'hidden_act must be "relu", .* or "quick_gelu"'),
        (lambda: from_hf(tower("Text", eos_token_id=[3, 4])), OptionError, r"eos_token_id = \[3, 4\] cannot be read"),
        (
            lambda: CLIP(ViT(8, 4, 1, 8, 2), CLIPText(9, 8, 2, 1))(torch.randn(2, 3, 8, 8), torch.ones(2, 3).long()),
            ShapeError,
            r"vectors \(B, P\) of one width, got \(2, 5, 8\)",
        ),
        (lambda: CLIPText(9, 8, 2, 1)(torch.tensor([[9]])), PositionIndexError, r"tokens must be in \[0, 9\)"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()

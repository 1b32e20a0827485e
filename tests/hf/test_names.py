"""The name of a patch in configurations: no other model runs under it, and no configuration of the
user has it.
"""

import copy
import gc
import math

import pytest
import torch
from tiny_models import tiny_config, tiny_model
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import graphattn as ga
from graphattn.errors import OptionError

WINDOW = ga.graphs.sliding_window(..., 4, causal=True)
CARRIED = r"carries another model's patch.* patch it too, ga.patch\(model, graph\)"


def tokens():
    return torch.randint(3, 30, (2, 11), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def llama():
    return tiny_model("llama", auto=AutoModelForCausalLM)


@torch.no_grad()
def log_probabilities(model):
    return model(tokens()).logits.log_softmax(-1)


def test_a_reference_model_made_as_trl_makes_it_differs_in_nothing_once_patched(llama, tmp_path):
    """GRPO and DPO of TRL: from_pretrained(path,
    attn_implementation=model.config._attn_implementation).
    """
    llama.save_pretrained(tmp_path)
    ga.patch(llama, WINDOW)
    options = {"attn_implementation": llama.config._attn_implementation, "dtype": torch.float64}
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, **options)
    with pytest.raises(OptionError, match=CARRIED):
        log_probabilities(reference)
    ga.patch(reference, WINDOW)
    policy, wanted = log_probabilities(llama), log_probabilities(reference)
    divergence = F.kl_div(policy, wanted, log_target=True, reduction="sum")  # GRPO at step 0
    assert abs(float(divergence)) < 1e-12
    chosen, rejected = (policy - wanted)[..., 5].sum(-1)
    # DPO
    assert float(-F.logsigmoid(0.1 * (chosen - rejected))) == pytest.approx(math.log(2), abs=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: type(model)(model.config),
        lambda model: AutoModelForCausalLM.from_config(model.config),
        lambda model: type(model)(copy.deepcopy(model.config)),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_model_of_a_patched_configuration_refuses_until_it_is_patched_or_unpatched(
    llama, make, is_gone
):
    own = log_probabilities(llama)
    weights = llama.state_dict()
    ga.patch(llama, WINDOW)
    expected = log_probabilities(llama)
    others = [make(llama).double().eval() for _ in range(3)]
    for other in others:
        other.load_state_dict(weights)
    if is_gone:
        del llama
        gc.collect()
    for other in others:
        with pytest.raises(OptionError, match=CARRIED):
            log_probabilities(other)
    ga.patch(others[0], WINDOW)
    assert torch.equal(log_probabilities(others[0]), expected)
    ga.unpatch(others[1])
    assert torch.equal(log_probabilities(others[1]), own)
    assert others[1].config._attn_implementation == "sdpa"
    with pytest.raises(OptionError, match=CARRIED):
        log_probabilities(others[2])
    if not is_gone:
        assert torch.equal(log_probabilities(llama), expected)


def test_a_copy_of_a_patched_model_is_patched(llama):
    ga.patch(llama, WINDOW)
    assert torch.equal(log_probabilities(copy.deepcopy(llama)), log_probabilities(llama))


def test_the_configuration_of_the_user_stays_as_it_was():
    config = tiny_config(LlamaConfig)
    first = LlamaForCausalLM(config)
    before = copy.deepcopy(config.__dict__)
    ga.patch(first, WINDOW)
    assert config.__dict__ == before
    second = LlamaForCausalLM(config)
    del first
    gc.collect()
    log_probabilities(second)
    ga.patch(second, ga.graphs.sliding_window(..., 5, causal=True))
    log_probabilities(second)
    assert second.model.config is second.config
    ga.unpatch(second)
    assert second.config.__dict__ == before


@pytest.mark.parametrize("name", ["generate_batch", "init_continuous_batching"])
def test_continuous_batching_is_refused_by_name(llama, name):
    ga.patch(llama, WINDOW)
    with pytest.raises(OptionError, match="continuous batching packs"):
        getattr(llama, name)([[3, 4, 5]])
    ga.unpatch(llama)
    assert name not in vars(llama)


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, use_cache=False).logits


@pytest.mark.slow
def test_tracing_and_export_are_refused_by_name(llama):
    ga.patch(llama, WINDOW)
    for run in (torch.jit.trace, torch.export.export):
        with pytest.raises(
            OptionError, match=r"torch.export and torch.jit.trace cannot follow.* ga.unpatch"
        ):
            run(Logits(llama), (tokens(),))


@pytest.mark.slow
def test_compiled_models_split_rows_and_fullgraph_says_why_it_cannot(llama):
    ga.patch(llama, WINDOW)
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2]])
    given = {"input_ids": tokens(), "position_ids": positions, "use_cache": False}
    expected = llama(**given).logits
    assert torch.allclose(
        torch.compile(llama, backend="eager")(**given).logits, expected, rtol=0, atol=1e-12
    )
    torch.compiler.reset()
    with pytest.raises(
        Exception,
        match="a patched model makes its graphs from the tokens of each call: compile with",
    ):
        torch.compile(llama, backend="eager", fullgraph=True)(**given)
    torch.compiler.reset()

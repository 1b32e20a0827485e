"""Training on prefix trees: a patched model on one row beside the stock model on separate rows."""

from functools import partial

import pytest
import torch
from tiny_models import tiny_model
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

import graphattn as ga
from graphattn.graphs import prefix_tree

PROMPT = 7
MODELS = ["llama", "qwen2", "gemma3_text", "gpt2"]
CHECKPOINTING = [None, True, False]  # off, reentrant, not reentrant


def model_of(name):
    """A model whose norms are float64, too: those of transformers round to float32, by which the
    gradient of a token differs from a sum of gradients of its copies.
    """
    model = tiny_model(name, auto=AutoModelForCausalLM)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            epsilon = getattr(module, "variance_epsilon", None) or module.eps
            module.forward = partial(rms_norm, module, epsilon)
    return model


def rms_norm(module, epsilon, x):
    scale = module.weight
    if "Gemma" in type(module).__name__:
        scale = 1 + scale
    return torch.nn.functional.rms_norm(x, x.shape[-1:], scale, epsilon)


def tokens(*sizes):
    return torch.randint(3, 30, sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def turns():
    """Sequences that branch at several levels, one a prefix of another, with labels."""
    first, second, third = tokens(PROMPT), tokens(4), tokens(6)
    sequences = [
        torch.cat((first, second)),
        torch.cat((first, third)),
        torch.cat((first, second, third, second)),
        torch.cat((first, second, third, third)),
        tokens(5),
    ]
    labels = [sequence.clone() for sequence in sequences]
    labels[2][9:12] = -100
    labels[3][:3] = -100
    return sequences, labels


def completions():
    prompt = tokens(PROMPT)
    rows = [tokens(length) for length in (5, 3, 8)]
    labels = [torch.cat((torch.full((PROMPT,), -100), row)) for row in rows]
    return prompt, rows, labels


def trees():
    """Each tree with its sequences and their labels."""
    prompt, rows, labels = completions()
    yield prefix_tree(rows, prompt_ids=prompt), [torch.cat((prompt, row)) for row in rows], labels
    sequences, labels = turns()
    yield prefix_tree(sequences, labels=labels), sequences, labels


def graphs_of(model, tree):
    """The graph of each layer."""
    window = getattr(model.config, "sliding_window", None)
    kinds = getattr(model.config, "layer_types", None)
    if kinds is None and window is None:
        return tree.graph
    if kinds is None:
        return tree.window(window)
    return [tree.window(window) if kind.startswith("sliding") else tree.graph for kind in kinds]


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    found = {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}
    assert found
    return found


def expected(model, sequences, labels):
    """Loss, gradients and log-probabilities of separate rows, each run by the stock model alone."""
    model.zero_grad()
    losses = []
    sums = []
    for sequence, label in zip(sequences, labels, strict=True):
        logits = model(sequence[None], use_cache=False).logits[0, :-1]
        losses.append(cross_entropy(logits, label[1:], reduction="none"))
        sums.append(-losses[-1].sum())
    total = sum(int((label[1:] != -100).sum()) for label in labels)
    loss = torch.cat(losses).sum() / total
    return loss.detach(), torch.stack(sums).detach(), gradients(model, loss)


def assert_same(model, tree, wanted):
    loss, sums, of_parameters = wanted
    logits = model(tree.input_ids, position_ids=tree.position_ids).logits
    assert torch.allclose(tree.log_probs(logits).sum(-1), sums, rtol=0, atol=1e-10)
    ours = tree.loss(logits)
    assert torch.allclose(ours, loss, rtol=0, atol=1e-10)
    found = gradients(model, ours)
    assert found.keys() == of_parameters.keys()
    assert all(gradient.any() for gradient in of_parameters.values())
    for name, gradient in found.items():
        assert torch.allclose(gradient, of_parameters[name], rtol=0, atol=1e-10), name


def checkpointed(model, use_reentrant):
    """Checkpointing without dropout."""
    if use_reentrant is not None:
        model.train().gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        for part in model.modules():
            part.train(hasattr(part, "gradient_checkpointing"))
    return model


def compare(name, use_reentrant, adapt=lambda model: model):
    model = adapt(model_of(name))
    for tree, sequences, labels in trees():
        wanted = expected(model.eval(), sequences, labels)
        with ga.patched(checkpointed(model, use_reentrant), graphs_of(model, tree)):
            assert_same(model, tree, wanted)


def with_lora(model):
    peft = pytest.importorskip("peft")
    is_gpt2 = model.config.model_type == "gpt2"
    config = peft.LoraConfig(
        r=3,
        target_modules=["c_attn"] if is_gpt2 else ["q_proj", "v_proj"],
        init_lora_weights=False,
        fan_in_fan_out=is_gpt2,
    )
    return peft.get_peft_model(model, config).double()


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_separate_rows(name):
    compare(name, None)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_loss_and_gradients_under_checkpointing(use_reentrant):
    compare("gemma3_text", use_reentrant)


def test_gradients_of_adapters_are_those_of_separate_rows():
    compare("llama", None, with_lora)


@pytest.mark.slow
@pytest.mark.parametrize("use_reentrant", CHECKPOINTING)
@pytest.mark.parametrize("adapt", [lambda model: model, with_lora], ids=["all", "lora"])
@pytest.mark.parametrize("name", [*MODELS, "qwen3", "mistral", "olmo2", "granite"])
def test_every_model_with_checkpointing_and_adapters(name, adapt, use_reentrant):
    if use_reentrant and adapt is with_lora:
        # as in transformers: without input gradients a reentrant checkpoint has none
        def adapt(model):
            adapted = with_lora(model)
            adapted.enable_input_require_grads()
            return adapted

    compare(name, use_reentrant, adapt)


@pytest.fixture(scope="module")
def gemma():
    return model_of("gemma3_text")


@pytest.mark.parametrize("layers", ["all", "local"])
def test_a_wrong_parent_changes_the_loss(gemma, layers):
    """The control: a completion that starts one token before the end of the prompt."""
    tree, _, _ = next(trees())
    parents = tree.parents.clone()
    parents[tree.paths[1, PROMPT]] -= 1
    wrong = ga.graphs.ancestors(parents)
    given = [tree.window(5), tree.graph]
    if layers == "all":
        broken = [ga.graphs.ancestors(parents, window=5), wrong]
    else:
        broken = [ga.graphs.ancestors(parents, window=5), tree.graph]
    found = []
    for graphs in (given, broken):
        with ga.patched(gemma, graphs), torch.no_grad():
            logits = gemma(tree.input_ids, position_ids=tree.position_ids).logits
            found.append(tree.log_probs(logits).sum(-1))
    same = torch.isclose(*found, rtol=0, atol=1e-10)
    assert same.tolist() == [True, False, True]
    assert abs(found[0] - found[1])[1] > 1e-4


def test_wrong_position_ids_change_the_loss(gemma):
    tree, _, _ = next(trees())
    losses = []
    for positions in (tree.position_ids, torch.arange(tree.parents.numel())[None]):
        with ga.patched(gemma, tree.graph), torch.no_grad():
            losses.append(tree.loss(gemma(tree.input_ids, position_ids=positions).logits))
    assert abs(losses[0] - losses[1]) > 1e-4


def test_sequences_share_what_is_dropped_in_their_prefix():
    """The meaning of dropout: a token of the row draws once, a token of separate rows in each."""
    model = model_of("gpt2").train()
    sequences = [[3, 4, 5, 6], [3, 4, 5, 7]]
    tree = prefix_tree(sequences)
    with ga.patched(model, tree.graph):
        logits = model(tree.input_ids, position_ids=tree.position_ids).logits
    shared = tree.log_probs(logits)[:, :3]
    assert torch.equal(shared[0], shared[1])
    rows = model(torch.tensor(sequences)).logits[:, :2]
    assert not torch.isclose(rows[0], rows[1]).any()

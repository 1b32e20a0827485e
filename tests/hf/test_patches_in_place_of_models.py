"""What graphattn's own BART, Whisper, BEiT and Decision Transformer had to pass, of transformers'
models patched.
"""

import pytest
import torch
from tiny_models import tiny_model
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
)

import graphattn as ga
from graphattn import graphs

B, S, T, N = 2, 9, 7, 17  # examples, of a source, a target, and a class token with 4 x 4 patches
FULL = {"encoder": graphs.full(...), "decoder": graphs.causal(...), "cross": graphs.cross(..., ...)}
KINDS = {
    "bart": AutoModelForSeq2SeqLM,
    "mbart": AutoModelForSeq2SeqLM,
    "whisper": AutoModelForSpeechSeq2Seq,
}


def writer(name):
    sizes = {"num_mel_bins": 5, "max_source_positions": S} if name == "whisper" else {}
    model = tiny_model(name, auto=KINDS[name], **sizes)
    model.generation_config.decoder_start_token_id = 1
    return model


def source_and_target(name):
    draw = torch.Generator().manual_seed(1)
    target = torch.randint(3, 30, (B, T), generator=draw)
    if name == "whisper":
        sound = torch.randn(B, 5, 2 * S, generator=draw, dtype=torch.float64)
        return {"input_features": sound, "decoder_input_ids": target}
    return {"input_ids": torch.randint(3, 30, (B, S), generator=draw), "decoder_input_ids": target}


def gradients(model, output):
    model.zero_grad()
    output.square().sum().backward()
    return [x.grad.clone() for x in model.parameters() if x.grad is not None]


def same(found, wanted, within=1e-12):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1000 * within, atol=within)


@pytest.mark.parametrize("name", KINDS)
def test_a_writer_reads_its_source_along_graphs(name):
    model, given = writer(name), source_and_target(name)
    whole = model(**given).logits
    expected = gradients(model, whole)
    with ga.patched(model, FULL):
        output = model(**given).logits
        same([output], [whole])
        same(gradients(model, output), expected, 1e-10)

    def changed(**other):
        with ga.patched(model, FULL | other), torch.no_grad():
            return ((model(**given).logits - whole).abs().amax((0, 2)) > 1e-9).tolist()

    less = graphs.causal(T) - ga.from_edge_index([[0], [4]], num_nodes=T)
    cut = graphs.cross(T, S) - ga.from_edge_index([[8], [3]], num_sources=S, num_targets=T)
    assert changed(decoder=[graphs.causal(...), less]) == [t == 4 for t in range(T)]
    assert changed(decoder=less) == [t >= 4 for t in range(T)]
    assert changed(cross=cut) == [t >= 3 for t in range(T)]
    assert all(changed(encoder=graphs.sliding_window(..., 5, causal=False)))


@pytest.mark.parametrize("name", ["bart", "whisper"])
def test_a_writer_writes_what_its_own_path_does(name):
    model, given = writer(name), source_and_target(name)
    given.pop("decoder_input_ids")
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    own = model.generate(**given, **options)
    with ga.patched(model, FULL):
        assert torch.equal(model.generate(**given, **options), own)
        assert torch.equal(model.generate(**given, use_cache=False, **options), own)


@pytest.mark.parametrize(
    "relative", ["use_relative_position_bias", "use_shared_relative_position_bias", ""]
)
def test_beit_reads_patches_along_any_graph(relative):
    chosen = {relative: True} if relative else {"use_absolute_position_embeddings": True}
    model = tiny_model("beit", auto=AutoModelForImageClassification, **chosen)
    images = torch.randn(
        B, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    own = model(images).logits
    expected = gradients(model, own)
    with ga.patched(model, graphs.full(...)):
        output = model(images).logits
        same([output], [own])
        same(gradients(model, output), expected, 1e-10)
    rows = graphs.window_partition((4, 4), (1, 4)).with_global_tokens(1)
    # added to their biases
    mask = torch.zeros(B, 1, N, N, dtype=torch.float64).masked_fill(~rows.mask(), -torch.inf)
    wanted = model.beit(images, attention_mask=mask).last_hidden_state
    listed = ga.from_edge_index(rows.edge_index.flip(1), num_nodes=N)  # edges in another order
    with ga.patched(model, [listed, rows]):
        same([model.beit(images).last_hidden_state], [wanted])
    whole = model.beit(images).last_hidden_state
    with ga.patched(
        model, [graphs.full(...), graphs.full(N) - ga.from_edge_index([[6], [2]], num_nodes=N)]
    ):
        moved = (model.beit(images).last_hidden_state - whole).abs().amax((0, 2)) > 1e-9
    assert moved.tolist() == [node == 2 for node in range(N)]


def steps(model, **options):
    """Actions, states and returns that a Decision Transformer predicts, (B, 5, ...)."""
    draw, config = torch.Generator().manual_seed(1), model.config
    states, actions, returns = (
        torch.randn(B, 5, n, generator=draw, dtype=torch.float64)
        for n in (config.state_dim, config.act_dim, 1)
    )
    times = torch.randint(9, (B, 5), generator=draw)
    found = model(states=states, actions=actions, returns_to_go=returns, timesteps=times, **options)
    return found.action_preds, found.state_preds, found.return_preds


def test_decisions_are_three_nodes_a_step():
    model, real = tiny_model("decision_transformer"), torch.ones(B, 5, dtype=torch.int64)
    real[1, 3:] = 0
    own, short = steps(model), steps(model, attention_mask=real)
    expected = gradients(model, torch.cat(own, -1))
    with ga.patched(model, graphs.causal(...)):
        output = steps(model)
        same(output, own)
        same(gradients(model, torch.cat(output, -1)), expected, 1e-10)
        padded = steps(model, attention_mask=real)
        same([x[real.bool()] for x in padded], [x[real.bool()] for x in short])
    # the return of step 2, its state
    less = graphs.causal(15) - ga.from_edge_index([[6], [7]], num_nodes=15)
    layers = [graphs.causal(...)] * (model.config.n_layer - 1)
    with ga.patched(model, [*layers, less]):
        moved = [
            (a - b).abs().amax((0, 2)).gt(1e-9).tolist()
            for a, b in zip(steps(model), own, strict=True)
        ]
    assert moved == [[t == 2 for t in range(5)], [False] * 5, [False] * 5]

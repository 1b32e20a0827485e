"""``ga.patch``: which graphs go where, what is refused, and that all of transformers still works on
a patched model.
"""

import copy
import pickle
import warnings

import pytest
import torch
from tiny_models import inputs_of, padding, tiny_model
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import graphattn as ga
from graphattn.errors import GraphError, LoaderError, OptionError, ShapeError

WINDOW = ga.graphs.sliding_window(..., 4, causal=True)
BAND = ga.from_rule(lambda t, s: ((t - s) % 3 == 0) | (s == 0), 11, name="band")


@pytest.fixture
def llama():
    return tiny_model("llama", auto=AutoModelForCausalLM)


@pytest.fixture
def bert():
    return tiny_model("bert")


def tokens():
    return torch.randint(3, 30, (2, 11), generator=torch.Generator().manual_seed(1))


def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "graph",
    [BAND, ga.graphs.random_neighbours(11, 3, seed=1), ga.PerHead((BAND, ga.graphs.causal(11)))],
)
def test_any_graph_is_its_mask_on_the_own_path(llama, graph):
    one = [x.mask() for x in (graph.graphs if isinstance(graph, ga.PerHead) else (graph,))]
    # (B, H, T, S)
    mask = torch.stack(one).repeat_interleave(4 // len(one), 0).expand(2, -1, -1, -1)
    expected = llama(tokens(), attention_mask=mask).logits
    with ga.patched(llama, graph):
        assert close(llama(tokens()).logits, expected)


FULL = ga.graphs.full(...)
LEAKS = "the model predicts each token from the earlier ones, and along full"


@pytest.mark.parametrize("graph", [FULL, ga.graphs.full(64), [WINDOW, ga.PerHead((FULL(64),) * 2)]])
def test_a_model_that_writes_on_a_graph_of_later_tokens_is_warned_of(llama, graph):
    with pytest.warns(UserWarning, match=LEAKS):
        ga.patch(llama, graph)


def test_a_function_of_the_length_is_warned_of_when_it_gives_its_graph(llama):
    ga.patch(llama, ga.graphs.full)
    with pytest.warns(UserWarning, match=LEAKS):
        llama(tokens())


def test_causal_graphs_and_encoders_are_not_warned_of(llama, bert):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model, graph in ((llama, WINDOW), (llama, "model"), (bert, FULL)):
            ga.patch(model, graph)
            model(tokens())


def test_own_masks_are_kept_beside_the_graph(llama):
    """A mask of four dimensions takes edges away; relative biases are added."""
    mask = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(3)) < 0.7
    expected = llama(tokens(), attention_mask=mask & BAND.mask()).logits
    with ga.patched(llama, BAND):
        there = (mask & BAND.mask()).any(-1)[:, 0]
        assert there.all()
        assert close(llama(tokens(), attention_mask=mask).logits, expected)


def test_layers_that_nothing_is_given_for_stay(llama):
    full, banded = llama(tokens()).logits, ga.patched(llama, BAND)
    with ga.patched(llama, {1: ga.graphs.causal(...)}):
        assert close(llama(tokens()).logits, full)
    with banded, ga.patched(llama, [BAND, BAND]):
        both = llama(tokens()).logits
    with ga.patched(llama, {0: BAND, "layers.1": lambda n: BAND}):
        assert close(llama(tokens()).logits, both)
    padded = padding({"input_ids": tokens()}, "left")
    kept, alone = padded.bool(), llama(tokens(), attention_mask=padded).logits
    with ga.patched(llama, {1: ga.graphs.causal(...)}):
        assert close(llama(tokens(), attention_mask=padded).logits[kept], alone[kept])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_token(bert, side):
    """Whatever the side, an example gives what it gives by itself, along a graph that is not the
    same everywhere.
    """
    mask = padding({"input_ids": tokens()}, side)
    graph = ga.graphs.sliding_window(..., 3, causal=False) | ga.graphs.global_tokens(..., (0,))
    place = torch.arange(11) - 3 * (side == "left")
    with ga.patched(bert, graph):
        batch = bert(
            tokens(), attention_mask=mask, position_ids=place.clamp(min=0)[None]
        ).last_hidden_state
        alone = bert(tokens()[:1, mask[0].bool()]).last_hidden_state
    assert close(batch[0, mask[0].bool()], alone[0])


def test_a_hole_is_no_token(llama):
    mask = torch.ones(2, 11, dtype=torch.int64)
    mask[1, 4:6] = 0
    position = mask.cumsum(1) - 1
    with ga.patched(llama, WINDOW):
        batch = llama(tokens(), attention_mask=mask, position_ids=position).logits
        alone = llama(tokens()[1:, mask[1].bool()]).logits
    assert close(batch[1, mask[1].bool()], alone[0])


def test_packed_sequences_stay_apart(llama):
    position = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1]).expand(2, -1)
    graph = WINDOW | (ga.graphs.global_tokens(..., (0,)) & ga.graphs.causal(...))
    with ga.patched(llama, graph):
        packed = llama(tokens(), position_ids=position, use_cache=False).logits
        parts = [llama(x).logits for x in tokens().split([6, 3, 2], 1)]
    assert close(packed, torch.cat(parts, 1))


def test_a_function_of_the_batch(bert):
    """Heads read along a tree that is another one for each example."""

    def next_of_kind(input_ids, attention_mask):
        return [
            ga.from_mask(x[:, None] % 3 == x % 3) & ga.from_mask(m.bool().expand(11, 11))
            for x, m in zip(input_ids, attention_mask, strict=True)
        ]

    mask = padding({"input_ids": tokens()}, "right")
    dense = torch.stack([graph.mask() for graph in next_of_kind(tokens(), mask)])[:, None]
    expected = bert(tokens(), attention_mask=dense).last_hidden_state
    with ga.patched(bert, next_of_kind):
        assert close(
            bert(tokens(), attention_mask=mask).last_hidden_state[mask.bool()],
            expected[mask.bool()],
        )
        with pytest.raises(OptionError, match="pass attention_mask by name"):
            bert(tokens())


def test_weights_are_those_of_the_edges(bert):
    mask = padding({"input_ids": tokens()}, "left")
    eager = tiny_model("bert", _attn_implementation="eager")
    expected = eager(tokens(), attention_mask=mask & 1, output_attentions=True).attentions
    with ga.patched(bert, ga.graphs.full(...)):
        weights = bert(tokens(), attention_mask=mask, output_attentions=True).attentions
        assert bert(tokens()).attentions is None
    kept = mask.bool()[:, None, :, None].expand(-1, 4, -1, 11)
    assert len(weights) == 2
    assert all(close(w.dense()[kept], e[kept]) for w, e in zip(weights, expected, strict=True))


def test_rollout_and_questions_of_the_own_masks():
    model = tiny_model("gemma3_text")
    own = ga.patch(model, "model")
    assert [graph.name for graph in own.layers(24)] == [
        "sliding_window(24, 5, causal=True)",
        "causal(24)",
    ]
    assert not ga.leaks(own.layers(24))
    weights = model(tokens()[:1], output_attentions=True).attentions
    shares = ga.viz.rollout([ga.EdgeWeights(w.graph, w.alpha[0]) for w in weights])
    assert shares.graph.num_edges == 66  # all of a causal graph of 11
    ga.unpatch(model)
    with pytest.raises(OptionError, match="no layer has run yet"):
        ga.patch(model, WINDOW).layers()


def test_the_graph_travels_with_the_model(llama, tmp_path):
    ga.patch(llama, {"layers": [WINDOW, BAND]})
    expected = llama(tokens()).logits
    llama.save_pretrained(tmp_path)
    again = ga.hf.from_pretrained(tmp_path, dtype=torch.float64)
    assert close(again(tokens()).logits, expected)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert plain.config._attn_implementation == "sdpa"
    ga.unpatch(llama)
    assert close(plain(tokens()).logits, llama(tokens()).logits)
    with pytest.raises(LoaderError, match="was not saved with a graph"):
        ga.patch(llama, "saved")
    ga.patch(llama, lambda n: ga.graphs.causal(n))
    llama.save_pretrained(tmp_path)
    with pytest.raises(LoaderError, match="function <lambda>, which is not stored"):
        ga.hf.from_pretrained(tmp_path)


def test_a_copy_of_an_eager_model_is_a_model_of_its_own():
    model = tiny_model("llama", auto=AutoModelForCausalLM, _attn_implementation="eager")
    own = model(tokens()).logits
    ga.patch(model, WINDOW)
    other, expected = copy.deepcopy(model), model(tokens()).logits
    ga.unpatch(other)
    assert (other.config._attn_implementation, getattr(other.config, "graphattn", None)) == (
        "eager",
        None,
    )
    assert close(other(tokens()).logits, own)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in other.modules())
    assert close(model(tokens()).logits, expected)
    third = copy.deepcopy(model)
    ga.unpatch(model.model)  # a model in it stands for all of it
    assert model.config._attn_implementation == "eager"
    assert close(model(tokens()).logits, own)
    assert close(third(tokens()).logits, expected)


def test_a_graph_that_cannot_be_saved_leaves_the_model_as_it_was(llama):
    ga.patch(llama, WINDOW)
    expected = llama(tokens()).logits
    with pytest.raises(GraphError, match="too many to be saved"):
        ga.patch(llama, ga.from_rule(lambda t, s: t >= s, 6000))
    assert close(llama(tokens()).logits, expected)


@pytest.mark.slow
def test_autocast_and_compiled_layers(llama):
    ga.patch(llama, WINDOW)
    expected = llama(tokens()).logits
    llama.model.layers[0].compile(backend="eager")
    assert close(llama(tokens()).logits, expected)
    llama.model.layers[0]._compiled_call_impl = None
    llama.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(llama(tokens()).logits.double(), expected, rtol=0.1, atol=0.2)


@pytest.mark.slow
@torch.no_grad()
def test_inductor(llama):
    """The default backend of torch.compile, for what stands before and after attention."""
    ga.patch(llama, WINDOW)
    expected = llama(tokens()).logits
    llama.model.layers[1].self_attn.compile()
    assert torch.allclose(llama(tokens()).logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("big_bird", "patch a BERT with a window"),
        ("longformer", r"from_transformers of .*examples/models converts it"),
        ("bloom", "ALiBi"),
    ],
)
def test_other_attention_is_refused_with_what_can_be_done(name, message):
    with pytest.raises(OptionError, match=message):
        ga.patch(tiny_model(name), WINDOW)


def test_wrong_arguments():
    model = tiny_model("bart")
    with pytest.raises(
        OptionError, match=r"graph must name its stack, by role or name, such as \{'cross': graph\}"
    ):
        ga.patch(model, WINDOW)
    with pytest.raises(OptionError, match=r"graph\['decodre'\] matches no attention"):
        ga.patch(model, {"decodre": WINDOW})
    with pytest.raises(GraphError, match="3 graphs, but the model has 2 layers"):
        ga.patch(model, {"encoder": [WINDOW] * 3})
    with pytest.raises(GraphError, match="must be an AttentionGraph"):
        ga.patch(model, {"encoder": 5})
    with pytest.raises(OptionError, match="must be a model of transformers, got Linear"):
        ga.patch(torch.nn.Linear(1, 1), WINDOW)
    with pytest.raises(GraphError, match=r"wrap it with graphattn.from_mask\(mask\)"):
        ga.patch(tiny_model("bert"), WINDOW(5).mask())
    with pytest.raises(OptionError, match="got Sequential; pass the one in it"):
        ga.patch(torch.nn.Sequential(model), WINDOW)
    with pytest.raises(GraphError, match="must not be an empty dict"):
        ga.patch(model, {})
    with pytest.raises(LoaderError, match="/nowhere: expected a folder"):
        ga.hf.from_pretrained("/nowhere")
    ga.patch(model, {"encoder": ga.graphs.full(5)})
    with pytest.raises(GraphError, match=r"11 tokens.* must have at least as many nodes"):
        model(**inputs_of(model))


def test_functions_of_something_else_are_refused_at_once(llama):
    with pytest.raises(
        OptionError,
        match="function of input_ids, T, but the model has no input T; it has input_ids,",
    ):
        ga.patch(llama, lambda input_ids, T: WINDOW)
    assert not hasattr(llama.model.layers[0].self_attn, "_graphattn")


def test_a_mask_of_another_size_is_refused(llama):
    ga.patch(llama, WINDOW)
    with pytest.raises(
        ShapeError, match=r"attention_mask must have shape \(2, 1, 11, 11\).* got \(2, 1, 7, 7\)"
    ):
        llama(tokens(), attention_mask=torch.ones(2, 1, 7, 7, dtype=torch.bool))


def test_attention_that_is_set_by_another_name_does_not_drop_the_graph(llama):
    ga.patch(llama, WINDOW)
    expected = llama(tokens()).logits
    llama.set_attn_implementation("eager")
    with pytest.raises(OptionError, match="set to 'eager', which ignores the graph"):
        llama(tokens())
    ga.patch(llama, WINDOW)
    assert close(llama(tokens()).logits, expected)
    ga.unpatch(llama)
    assert llama.config._attn_implementation == "eager"


def test_a_patched_model_is_not_pickled(llama):
    ga.patch(llama, WINDOW)
    with pytest.raises(
        OptionError, match=r"save_pretrained\(path\) and load it by ga.hf.from_pretrained"
    ):
        pickle.dumps(llama)
    ga.unpatch(llama)
    assert close(pickle.loads(pickle.dumps(llama))(tokens()).logits, llama(tokens()).logits)


def test_a_folder_without_weights_is_named(llama, tmp_path):
    llama.config.save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        ga.hf.from_pretrained(tmp_path)


def test_attention_that_stays_in_its_own_code_is_named():
    shown = repr(ga.patch(tiny_model("longt5"), {"decoder": WINDOW}))
    assert "decoder.block.layer.SelfAttention x 2 on sliding_window(..., 4, causal=True)" in shown
    assert "LongT5LocalAttention as it was, in its own code" in shown


def test_two_patched_models_of_one_configuration_do_not_meet(llama):
    other, own = type(llama)(llama.config).double().eval(), llama(tokens()).logits
    other.load_state_dict(llama.state_dict())
    ga.patch(llama, WINDOW)
    expected = llama(tokens()).logits
    ga.patch(other, BAND)
    banded = other(tokens()).logits
    assert close(llama(tokens()).logits, expected)
    ga.unpatch(llama)
    assert close(other(tokens()).logits, banded)
    ga.unpatch(other)
    assert close(other(tokens()).logits, own)
    assert close(llama(tokens()).logits, own)
    assert not close(banded, own)
    assert {llama.config._attn_implementation, other.config._attn_implementation} == {"sdpa"}


@pytest.mark.slow
def test_training_is_that_of_the_mask(llama, tmp_path):
    """Twenty steps of the trainer of transformers; its checkpoint holds the graph."""
    from transformers import Trainer, TrainingArguments

    plain = copy.deepcopy(llama)
    rows = torch.randint(3, 30, (16, 11), generator=torch.Generator().manual_seed(4))
    examples = [{"input_ids": row, "labels": row} for row in rows]
    masked = [example | {"attention_mask": WINDOW(11).mask()[None]} for example in examples]
    ga.patch(llama, WINDOW)
    for model, data, folder in ((llama, examples, "graph"), (plain, masked, "mask")):
        options = {
            "max_steps": 20,
            "save_steps": 20,
            "per_device_train_batch_size": 4,
            "use_cpu": True,
        }
        arguments = TrainingArguments(tmp_path / folder, report_to=[], disable_tqdm=True, **options)
        Trainer(model, arguments, train_dataset=data).train()
    for ours, theirs in zip(llama.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
    saved = ga.hf.from_pretrained(tmp_path / "graph" / "checkpoint-20", dtype=torch.float64)
    assert close(saved(rows[:2]).logits, llama.eval()(rows[:2]).logits)


def test_adapters(llama):
    import peft

    adapted = peft.get_peft_model(
        llama, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    )
    ga.patch(adapted, BAND)
    expected = peft.get_peft_model(
        tiny_model("llama", auto=AutoModelForCausalLM), adapted.peft_config["default"]
    )
    expected.load_state_dict(adapted.state_dict())
    mask = BAND.mask().expand(2, 1, -1, -1)
    assert close(adapted(tokens()).logits, expected(input_ids=tokens(), attention_mask=mask).logits)
    ga.unpatch(adapted)
    assert close(adapted(tokens()).logits, expected(tokens()).logits)


def test_adapters_without_a_task_take_functions_of_the_batch(llama):
    """PEFT's model of no task is called with anything, and has the names of the model within."""
    import peft

    adapted = peft.get_peft_model(llama, peft.LoraConfig(target_modules=["q_proj"]))
    seen = []
    ga.patch(adapted, lambda input_ids: seen.append(input_ids.shape) or [BAND] * len(input_ids))
    found = adapted(input_ids=tokens()).logits
    assert seen == [(2, 11)]
    ga.unpatch(adapted)
    mask = BAND.mask().expand(2, 1, -1, -1)
    assert close(found, adapted(input_ids=tokens(), attention_mask=mask).logits)


def test_models_spread_over_devices(llama):
    """What accelerate moves between devices arrives as it left."""
    from accelerate import dispatch_model

    mask = padding({"input_ids": tokens()}, "left")
    ga.patch(llama, WINDOW)
    expected = llama(tokens(), attention_mask=mask).logits
    spread = dispatch_model(llama, {"model": "cpu", "lm_head": "cpu"}, force_hooks=True)
    assert close(spread(tokens(), attention_mask=mask).logits, expected)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_role_means_its_own_modules_in_whatever_order_it_is_named(family):
    model = tiny_model(family, auto=AutoModelForSeq2SeqLM)
    given = {"input_ids": tokens(), "decoder_input_ids": tokens()}
    with torch.no_grad():
        expected = model(**given).logits
        graphs = {"decoder": ga.graphs.causal(...), "cross": ga.graphs.cross(..., ...)}
        for some in ({"decoder": graphs["decoder"]}, graphs, dict(reversed(graphs.items()))):
            with ga.patched(model, some):
                assert close(model(**given).logits, expected)
        with ga.patched(model, {"cross": WINDOW}):
            assert not close(model(**given).logits, expected)

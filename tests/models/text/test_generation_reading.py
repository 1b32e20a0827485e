"""Models that read a source and write: as transformers' T5, and as the whole computed again, along
every graph.
"""

import pytest
import torch
from text_models import same, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, ShapeError
from graphattn.models import T5, Decoder, from_transformers, generate
from graphattn.models.generation import Continuation
from graphattn.nn import KeyValueCache, Rotary

B, S, P, NEW, V = 3, 7, 2, 6, 11
N = P + NEW
CAUSAL, WINDOW = graphs.causal(...), graphs.sliding_window(..., 2, causal=True)
SINK = graphs.causal(N) & (graphs.sliding_window(N, 3, causal=True) | graphs.global_tokens(N, (0,)))
# what is written reads near itself
SLOPE = ga.from_mask((torch.arange(N)[:, None] - torch.arange(S)).abs() <= 2)


def integers(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


SOURCE, TOKENS, LENGTHS = integers(B, S), integers(B, N, seed=1), torch.tensor([4, 7, 1])
PROMPT = TOKENS[:, :P]


@pytest.fixture(scope="module")
def t5():
    torch.manual_seed(0)
    model = T5(V, 12, 2, 2, 17, num_decoder_layers=3, num_buckets=8, max_distance=6)
    with torch.no_grad():
        for parameter in model.parameters():  # so that it does not write one token again and again
            parameter.mul_(2 + parameter.dim())
    return shaken(model)


def in_steps(reading, graph=None, tokens=TOKENS, sizes=(P, 1, 2, 1, 2)):
    write = Continuation(reading, graph, P, N, len(tokens))
    return torch.cat([write(part) for part in tokens.split(sizes, 1)], 1)


@pytest.mark.parametrize("graph", [None, SINK, [graphs.prefix(..., P), WINDOW, CAUSAL]])
@torch.no_grad()
def test_incremental_is_what_the_whole_gives(t5, graph):
    found = in_steps(t5.reading(SOURCE), graph)
    same(found, t5(SOURCE, TOKENS, None, graph))
    if graph is not None:
        assert not torch.allclose(found, in_steps(t5.reading(SOURCE)))
    for reads in (graphs.cross(..., ...), SLOPE, ga.PerHead((graphs.cross(N, S), SLOPE))):
        for lengths in (None, LENGTHS):
            reading = t5.reading(SOURCE, WINDOW, reads, lengths=lengths)
            whole = t5(SOURCE, TOKENS, WINDOW, graph, reads, lengths=lengths)
            same(in_steps(reading, graph), whole)
            same(reading(TOKENS, graph), whole)
            assert not torch.allclose(whole, found)


@pytest.mark.slow
@torch.no_grad()
def test_what_is_written_is_likeliest_after_each_recomputation(t5):
    model, tokens = t5, PROMPT
    reading = model.reading(SOURCE, lengths=LENGTHS)
    for _ in range(NEW):
        tokens = torch.cat((tokens, model(SOURCE, tokens, lengths=LENGTHS)[:, -1:].argmax(-1)), 1)
    assert torch.equal(generate(reading, PROMPT, max_new_tokens=NEW), tokens)
    beams = [
        generate(reading, PROMPT, max_new_tokens=NEW, strategy="beam", num_beams=n) for n in (1, 4)
    ]
    assert torch.equal(beams[0], tokens)
    greedy, best = (
        model(SOURCE, text, lengths=LENGTHS)
        .log_softmax(-1)[:, P - 1 : -1]
        .gather(-1, text[:, P:, None])
        .sum((1, 2))
        for text in (tokens, beams[1])
    )
    assert (best >= greedy - 1e-12).all()
    prompts = [PROMPT[0], PROMPT[1, :1], PROMPT[2]]  # of several lengths, each with its own source
    alone = [
        generate(
            model.reading(SOURCE[i : i + 1], lengths=LENGTHS[i : i + 1]),
            x[None],
            max_new_tokens=NEW,
        )[0]
        for i, x in enumerate(prompts)
    ]
    assert all(map(torch.equal, generate(reading, prompts, max_new_tokens=NEW), alone))
    one = generate(model.reading(SOURCE[:1]), PROMPT, max_new_tokens=NEW)  # one source for all
    assert torch.equal(
        one, generate(model.reading(SOURCE[:1].expand(B, S)), PROMPT, max_new_tokens=NEW)
    )
    assert not torch.equal(one[1:], tokens[1:])


@torch.no_grad()
def test_the_encoder_runs_once_and_so_do_the_memorys_keys(t5):
    calls = {"encoder": 0, "memory": 0, "own": 0}
    block = t5.decoder.layers[1]
    for name, part in (
        ("encoder", t5.encoder),
        ("memory", block.cross_attention.k_proj),
        ("own", block.attention.k_proj),
    ):
        part.register_forward_hook(lambda *given, name=name: calls.update({name: calls[name] + 1}))
    generate(t5.reading(SOURCE), PROMPT, max_new_tokens=NEW, strategy="beam", num_beams=3)
    assert calls == {"encoder": 1, "memory": 1, "own": NEW}
    for part in (t5.encoder, block.cross_attention.k_proj, block.attention.k_proj):
        part._forward_hooks.clear()


@torch.no_grad()
def test_positions_of_a_decoder_that_turns_go_on():
    torch.manual_seed(0)
    decoder = shaken(Decoder(2, 8, 2, rotary=Rotary(4)))
    x, memory = torch.randn(B, N, 8).double(), torch.randn(B, S, 8).double()
    whole = decoder(x, CAUSAL, memory)
    for read in (memory, decoder.hold(memory)):
        caches = [KeyValueCache(), KeyValueCache()]
        parts = [
            decoder(part, graphs.causal(..., ...), read, caches=caches)
            for part in x.split((3, 1, 4), 1)
        ]
        same(torch.cat(parts, 1), whole)


transformers = pytest.importorskip("transformers", minversion="5.15")


def test_greedy_and_beams_of_transformers():
    torch.manual_seed(3)
    options = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    sizes = {"vocab_size": V, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3}
    config = transformers.T5Config(
        **sizes, decoder_start_token_id=0, eos_token_id=None, pad_token_id=0, **options
    )
    theirs = transformers.T5ForConditionalGeneration._from_config(
        config, attn_implementation="eager"
    )
    for _ in range(3):
        theirs = shaken(theirs)
    mine, source, start = (
        from_transformers(theirs),
        integers(8, S),
        torch.zeros(8, 1, dtype=torch.int64),
    )
    lengths = torch.tensor([7, 3, 5, 1, 7, 2, 6, 4])
    rules = {"max_new_tokens": NEW, "do_sample": False}
    rules["attention_mask"] = (torch.arange(S) < lengths[:, None]).long()
    reading = mine.reading(source, lengths=lengths)
    early = generate(reading, start, max_new_tokens=NEW)[:, 2].mode(0).values.item()
    ends = 0
    for eos in (None, early):
        rules.update(eos_token_id=eos, pad_token_id=0 if eos is None else eos)
        found = generate(reading, start, max_new_tokens=NEW, eos=eos)
        assert torch.equal(found, theirs.generate(source, **rules))
        for beams, penalty in ((2, 0.0), (4, 0.6), (3, -1.0)):
            given = {"strategy": "beam", "num_beams": beams, "length_penalty": penalty}
            found = generate(reading, start, max_new_tokens=NEW, eos=eos, **given)
            wanted = theirs.generate(
                source, **rules, num_beams=beams, early_stopping="never", length_penalty=penalty
            )
            assert torch.equal(found, wanted)
            ends += int((found[:, 2:-1] == eos).sum()) if eos is not None else 0
    assert ends > 0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m: (m.reading(SOURCE[:2]),), ShapeError, "got 3 prompts and 2 sources"),
        (
            lambda m: (m.reading(SOURCE), graphs.full(...)),
            GraphError,
            "0 depends on 7, which is 6 later\n  layer 0",
        ),
        (lambda m: (m.reading(SOURCE), [CAUSAL] * 2), GraphError, "3 layers need as many graphs"),
        (
            lambda m: (m.reading(SOURCE, None, graphs.cross(N - 1, S)),),
            ShapeError,
            f"memory_graph needs {S} sources, .* a target for each of {N} tokens; got .*cross",
        ),
        (
            lambda m: (m.reading(SOURCE, None, graphs.cross(N, S + 1)),),
            ShapeError,
            "memory_graph needs 7 sources",
        ),
        (
            lambda m: (m.reading(SOURCE, lengths=LENGTHS + 1),),
            ShapeError,
            r"lengths must be in \[1, 8\), of the tokens, got 2 to 8",
        ),
        (
            lambda m: (m.reading(SOURCE, lengths=LENGTHS[:2]),),
            ShapeError,
            r"got a Tensor \(2,\) of int64",
        ),
    ],
)
def test_refusals(t5, make, error, message):
    with pytest.raises(error, match=message):
        generate(*(lambda model, graph=None: (model, PROMPT, graph))(*make(t5)), max_new_tokens=NEW)

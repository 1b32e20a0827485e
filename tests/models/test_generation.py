"""Generation: equal to computing everything again, to transformers' own, and to every sequence
there is.
"""

import itertools

import pytest
import torch
from text_models import log_probability, same, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphAttnError, GraphError, OptionError, PositionIndexError, ShapeError
from graphattn.models import GPT, from_transformers, generate
from graphattn.models.generation import Continuation
from graphattn.models.generation.strategies import Sampling, truncated

B, P, NEW, V = 3, 4, 7, 11
N = P + NEW
CAUSAL = graphs.causal(...)
WINDOW = graphs.sliding_window(..., 3, causal=True)
# a window and a sink
STEM = (graphs.sliding_window(N, 3, causal=True) | graphs.global_tokens(N, (0,))) & graphs.causal(N)
HEADS = ga.PerHead((graphs.causal(N), graphs.sliding_window(N, 2, causal=True)))
GRAPHS = {
    "causal": CAUSAL,
    "window": WINDOW,
    "window and sink": STEM,
    "prefix": graphs.prefix(..., P),
    "strided": graphs.sparse_strided(..., 3) & CAUSAL,
    "per layer": [WINDOW, CAUSAL],
    "per head": [HEADS, HEADS],
    "of edges, larger": ga.from_mask(
        torch.rand(N + 2, N + 2, generator=torch.Generator().manual_seed(4)).lt(0.5).tril()
    ),
    "no edges at first": graphs.causal(N) - ga.graphs.self_loops(N),
}


def gpt2(*sizes, **options):
    """A GPT-2 with Xavier's weights, which tell tokens and positions apart; its own are smaller."""
    return GPT(*sizes, activation="gelu_tanh", **options)


def model(kind=gpt2, seed=0, num_layers=2, **options):
    torch.manual_seed(seed)
    made = {"max_len": 40} if kind is gpt2 else {"hidden": 17, "num_kv_heads": 1}
    return shaken(kind(V, 12, 2, num_layers, **{**made, **options}))


def prompt(length=P):
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(1))


def steps(made, graph, tokens, sizes):
    write = Continuation(made, graph, P, N)
    return torch.cat([write(part) for part in tokens.split(sizes, 1)], 1)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", [gpt2, GPT.llama], ids=["gpt2", "llama"])
@torch.no_grad()
def test_incremental_is_what_the_whole_gives(kind, name):
    made, graph, tokens = model(kind), GRAPHS[name], prompt(N)
    whole = graph.subgraph(range(N)) if name == "of edges, larger" else graph
    expected = made(tokens, whole)
    found = steps(made, graph, tokens, (P, 1, 3, 1, 2))
    same(found, expected)
    same(steps(made, graph, tokens, (P, *[1] * NEW)), expected)
    if name != "causal":  # another graph would be seen
        assert not torch.allclose(steps(made, CAUSAL, tokens, (P, 7)), expected)


# of each layer, what is held once all are written, and how many graphs the last tokens read along
HELD = {
    "causal": [N, N],
    "window": [3, 3],
    "window and sink": [N, N],
    "prefix": [N, N],
    "per layer": [3, N],
    "per head": [N, N],
}


@pytest.mark.parametrize("name", HELD)
@torch.no_grad()
def test_a_layer_holds_what_is_still_read(name):
    write = Continuation(model(), GRAPHS[name], P, N)
    write(prompt())
    for number in range(P, N):
        write(prompt(N)[:, number : number + 1])
    assert [cache.key.shape[1] for cache in write.caches] == HELD[name]
    assert [cache.length for cache in write.caches] == [N, N]


@torch.no_grad()
def test_tokens_of_a_window_read_along_one_graph():
    wide, seen = graphs.sliding_window(..., 3, causal=True), set()
    write = Continuation(model(max_len=None, rotary=ga.nn.Rotary(6)), wide, P, 50)
    write(prompt())
    for _ in range(P, 50):
        seen.update(map(id, write.rows(1)))
        write(prompt(1))
    assert len(seen) == 1
    longer = Continuation(
        model(), graphs.sliding_window(..., 30, causal=True), P, N
    )  # than the text
    longer(prompt())
    assert [str(graph.num_sources) for graph in longer.rows(1)] == [str(P + 1)] * 2


def test_a_model_with_caches_of_its_own_reads_all_tokens_so_far():
    class Cache:
        tokens = torch.zeros(B, 0, dtype=torch.int64)

        def reorder(self, batch):
            self.tokens = self.tokens[batch]

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model()
            self.graph, self.sizes = self.model.graph, []

        def begin(self, batch, length):
            return [Cache()]

        def forward(self, tokens, graph, caches):
            [cache] = caches
            cache.tokens = torch.cat((cache.tokens, tokens), 1)
            self.sizes.append(graph[0].num_sources)
            return self.model(cache.tokens, WINDOW)[:, -tokens.shape[1] :]

    whole = Whole()
    assert torch.equal(
        generate(whole, prompt(), WINDOW, max_new_tokens=NEW),
        generate(whole.model, prompt(), WINDOW, max_new_tokens=NEW),
    )
    assert whole.sizes == list(range(P, N))


@pytest.mark.parametrize("name", ["window", "strided", "of edges, larger"])
@torch.no_grad()
def test_rows_too_many_to_be_looked_at_one_by_one_are_cut_from_the_graph(name, monkeypatch):
    made, tokens = model(), prompt(N)
    listed = steps(made, GRAPHS[name], tokens, (P, 1, 3, 3))
    monkeypatch.setattr("graphattn.models.generation.continuation._LISTED", 0)
    same(steps(made, GRAPHS[name], tokens, (P, 1, 3, 3)), listed)


def test_greedy_chooses_the_likeliest_after_each_recomputation():
    made, graph, tokens = model(seed=3), [WINDOW, STEM], prompt()
    found = generate(made, tokens, graph, max_new_tokens=NEW)
    for _ in range(NEW):
        length = tokens.shape[1]
        logits = made(
            tokens, [graphs.sliding_window(length, 3, causal=True), STEM.subgraph(range(length))]
        )
        tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), 1)
    assert torch.equal(found, tokens)
    assert not torch.equal(found, generate(made, prompt(), max_new_tokens=NEW))
    single = generate(made, prompt()[1], graph, max_new_tokens=NEW)
    assert torch.equal(single, found[1])
    several = generate(made, prompt()[:, None].expand(B, 2, P), graph, max_new_tokens=NEW)
    assert torch.equal(several, found[:, None].expand(B, 2, N))


def test_prompts_of_several_lengths_are_a_list():
    made, options = model(), {"max_new_tokens": NEW, "eos": 3}
    prompts = [prompt()[0], prompt()[1, :2], prompt()[2], prompt(2)[0]]
    for how in ({}, {"strategy": "beam", "num_beams": 3}):
        found = generate(made, prompts, WINDOW, **options, **how)
        for text, given in zip(found, prompts, strict=True):
            whole = generate(made, given, WINDOW, **options, **how)
            assert torch.equal(text, whole)  # each to its own end
    assert generate(made, [], max_new_tokens=1) == []
    assert generate(made, prompt()[:0], max_new_tokens=2).shape == (0, P + 2)


EXAMPLES = {
    "graphs": ga.PerExample([graphs.sliding_window(N, 3, causal=True), graphs.causal(N), STEM]),
    "patterns": ga.PerExample([WINDOW, CAUSAL, WINDOW]),
    "per layer": [ga.PerExample([WINDOW, CAUSAL, WINDOW]), CAUSAL],
    "per head": ga.PerExample([HEADS, HEADS, CAUSAL]),
}


def _alone(graph, row):
    """The graphs of one sequence."""
    if isinstance(graph, list):
        return [_alone(layer, row) for layer in graph]
    if isinstance(graph, ga.PerExample):
        return graph.graphs[row]
    return graph


def test_a_continuation_of_graphs_of_examples_is_refused():
    with pytest.raises(GraphError, match="takes one graph for all its sequences"):
        Continuation(model(), EXAMPLES["graphs"], P, N, B)


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", [{}, {"strategy": "beam", "num_beams": 3}], ids=["greedy", "beam"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_prompt_is_continued_along_the_graph_of_its_example(name, how):
    made, graph = model(), EXAMPLES[name]
    options = {"max_new_tokens": NEW, **how}
    alone = [generate(made, prompt()[b], _alone(graph, b), **options) for b in range(B)]
    found = generate(made, prompt(), graph, **options)
    assert torch.equal(found, torch.stack(alone))
    assert not torch.equal(found, generate(made, prompt(), _alone(graph, 1), **options))
    twice = generate(made, prompt().expand(2, B, P), graph, **options)
    assert torch.equal(twice, found.expand(2, B, N))
    longest = generate(made, prompt(), graph, eos=3, **options)
    prompts = [prompt()[0, :2], prompt()[1], prompt()[2, :3]]
    listed = generate(made, prompts, graph, eos=3, **options)
    for b, text in enumerate(listed):
        ended = generate(made, prompt()[b], _alone(graph, b), eos=3, **options)
        assert torch.equal(longest[b, : len(ended)], ended)
        assert bool((longest[b, len(ended) :] == 3).all())
        assert torch.equal(text, generate(made, prompts[b], _alone(graph, b), eos=3, **options))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_writes_the_same():
    made, programs = model(num_layers=1), []
    compiled = torch.compile(made, backend=lambda module, example: programs.append(1) or module)
    # each length is a program, then plain code runs
    with torch._dynamo.config.patch(recompile_limit=2):
        found = generate(compiled, prompt(), WINDOW, max_new_tokens=3)
    assert torch.equal(found, generate(made, prompt(), WINDOW, max_new_tokens=3))
    assert len(programs) == 2


def test_logits_that_are_no_numbers_and_more_tokens_than_were_asked_for():
    made = model()
    write = Continuation(made, CAUSAL, P, N, B)
    write(prompt())
    # where the tokens are
    assert {graph.device.type for graph in write.rows(1, "meta")} == {"meta"}
    with pytest.raises(ShapeError, match="4 of 11 tokens are written; 8 more do not fit"):
        write(prompt(8))
    with torch.no_grad():
        made.embedding.weight[2] = torch.nan
    for options in ({}, {"strategy": "sample"}, {"strategy": "beam", "num_beams": 2}):
        with pytest.raises(
            GraphAttnError,
            match="the largest logits of sequences after token 3 must be finite, got NaN or infinity; look for",
        ):
            generate(made, torch.zeros(B, P, dtype=torch.int64), max_new_tokens=2, **options)


@pytest.mark.parametrize("graph", [[WINDOW, CAUSAL], [HEADS, WINDOW]])
def test_alibi_goes_along(graph):
    made = shaken(GPT(V, 12, 2, 2, score_bias=ga.nn.ALiBi(2)))
    tokens = prompt(N)
    for sizes in ((P, 1, 3, 1, 2), (P, *[1] * NEW)):
        same(steps(made, graph, tokens, sizes), made(tokens, graph))
        with torch.no_grad():
            same(steps(made, graph, tokens, sizes), made(tokens, graph))


@pytest.mark.parametrize("eos", [None, 0, 1, 2, 3, 4])
def test_one_beam_is_greedy(eos):
    made = model()
    options = {"max_new_tokens": NEW, "eos": eos}
    greedy = generate(made, prompt(), WINDOW, **options)
    assert torch.equal(
        generate(made, prompt(), WINDOW, strategy="beam", num_beams=1, **options), greedy
    )


def test_beams_find_what_is_at_least_as_likely():
    gained = 0.0
    for seed in range(4):
        made = model(seed=seed)
        found = [generate(made, prompt(), max_new_tokens=NEW)]
        found += [
            generate(made, prompt(), max_new_tokens=NEW, strategy="beam", num_beams=n)
            for n in (3, 8)
        ]
        greedy, *beams = (log_probability(made, tokens, P) for tokens in found)
        assert all((beam >= greedy - 1e-12).all() for beam in beams)
        gained += float((beams[1] - greedy).sum())
    assert gained > 0.1


@pytest.mark.parametrize("eos", [None, 1])
def test_enough_beams_find_the_likeliest_of_all(eos):
    torch.manual_seed(5)
    made, new = shaken(gpt2(3, 8, 2, 1, max_len=9)), 4
    tokens = torch.tensor([[0, 2], [1, 1]])
    found = generate(made, tokens, max_new_tokens=new, strategy="beam", num_beams=3**3, eos=eos)
    for row, given in enumerate(tokens):
        best = (-torch.inf, None)
        for tail in itertools.product(range(3), repeat=new):
            end = tail.index(eos) + 1 if eos in tail else new
            if set(tail[end:]) <= {eos}:
                whole = torch.cat((given, torch.tensor(tail[:end])))
                best = max(
                    best, (float(log_probability(made, whole, 2)), [*whole.tolist(), *tail[end:]])
                )
        padded = found[row].tolist() + [eos] * (2 + new - found.shape[1])
        assert padded == best[1]


def test_a_model_is_filled_to_its_last_position_and_no_further():
    made = model(max_len=N)
    assert generate(made, prompt(), max_new_tokens=NEW).shape == (B, N)
    with pytest.raises(ShapeError, match=f"positions for {N} tokens.*max_new_tokens = {NEW + 1}"):
        generate(made, prompt(), max_new_tokens=NEW + 1)


@pytest.mark.parametrize(
    "options", [{}, {"strategy": "beam", "num_beams": 2}, {"strategy": "sample", "top_k": 3}]
)
def test_a_token_of_logit_minus_infinity_is_never_written(options):
    class Barred(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model()
            self.graph, self.begin, self.max_len = (
                self.model.graph,
                self.model.begin,
                self.model.max_len,
            )

        def forward(self, *args, **given):
            return self.model(*args, **given).index_fill(-1, torch.arange(V - 1), -torch.inf)

    found = generate(Barred(), prompt(), max_new_tokens=3, **options)
    assert bool((found[:, P:] == V - 1).all())


@pytest.mark.slow
def test_random_tokens_are_seeded_and_follow_the_probabilities():
    made = model()
    drawn = [
        generate(
            made,
            prompt(),
            max_new_tokens=NEW,
            strategy="sample",
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (1, 1, 2)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    logits = made(prompt()[:1])[0, -1].detach()
    many = {
        "max_new_tokens": 1,
        "strategy": "sample",
        "generator": torch.Generator().manual_seed(3),
    }
    for options, share in (
        ({}, logits.softmax(-1)),
        ({"temperature": 0.5}, (2 * logits).softmax(-1)),
        ({"top_k": 4}, truncated(logits, 4).softmax(-1)),
    ):
        last = generate(made, prompt()[:1].expand(20_000, P), **many, **options)[:, -1]
        same(torch.bincount(last, minlength=V) / 20_000, share.float(), 0.06)
    cold = generate(made, prompt(), max_new_tokens=NEW, strategy="sample", temperature=1e-6)
    assert torch.equal(cold, generate(made, prompt(), max_new_tokens=NEW))
    one = generate(made, prompt(), max_new_tokens=NEW, strategy="sample", top_k=1)
    assert torch.equal(one, cold)


def test_supports_of_top_k_and_top_p():
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    kept = [
        (truncated(logits, *options) > -torch.inf)[0].int().tolist()
        for options in ((1,), (2,), (3,), (None, 0.4))
    ]
    # equals are kept together
    assert kept == [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0]]
    assert (truncated(logits, None, 0.6) > -torch.inf).sum() == 2
    assert (truncated(logits, 3, 0.95) > -torch.inf).sum() == 3
    draw = Sampling(temperature=5.0, top_k=3, top_p=0.7, generator=torch.Generator().manual_seed(0))
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(0))
    allowed = truncated(logits / 5.0, 3, 0.7)[0] > -torch.inf
    drawn = draw(logits.expand(500, 9)).unique()
    assert torch.equal(drawn, allowed.nonzero().flatten())


LEAKS = {
    "full": (graphs.full(...), "leak: 0 depends on 10, which is 7 later\n  layer 0: 10 -> 0"),
    "one layer": (
        [CAUSAL, graphs.sliding_window(..., 3, causal=False)],
        "3 depends on 4, .*\n  layer 1: 4 -> 3",
    ),
    "prefix beyond the prompt": (
        graphs.prefix(..., P + 1),
        "0 depends on 4, which is 1 later\n  layer 0: 4 -> 0",
    ),
    "one head": (
        [HEADS, ga.PerHead((graphs.causal(N), graphs.full(N)))],
        "0 depends on 10, .*\n  layer 1: 10 -> 0",
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_graph_that_reads_the_future_is_refused(name):
    graph, way = LEAKS[name]
    with pytest.raises(GraphError, match=f"not written yet.*\n.*{way}"):
        generate(model(), prompt(), graph, max_new_tokens=NEW)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"strategy": "best"},
            OptionError,
            'strategy must be "greedy", "beam" or "sample", got \'best\'',
        ),
        ({"num_beams": 2}, OptionError, """num_beams requires strategy="beam", got 'greedy'"""),
        ({"strategy": "beam"}, OptionError, "needs num_beams"),
        (
            {"strategy": "beam", "num_beams": 2, "top_k": 3},
            OptionError,
            'top_k requires strategy="sample", got',
        ),
        (
            {"strategy": "beam", "num_beams": 0},
            OptionError,
            "num_beams must be a whole number >= 1",
        ),
        (
            {"strategy": "sample", "temperature": 0.0},
            OptionError,
            "temperature must be .*near 0 .*greedy.*, got 0.0",
        ),
        (
            {"strategy": "sample", "top_p": 1.5},
            OptionError,
            r"top_p must be a number in \[1e-30, 1\], got 1.5",
        ),
        ({"max_new_tokens": 0}, OptionError, "max_new_tokens must be a whole number >= 1"),
        ({"max_new_tokens": 50}, ShapeError, "positions for 40 tokens, .* needs 54"),
        ({"eos": V}, OptionError, "eos must be below 11, the number of logits, got 11"),
        (
            {"strategy": "beam", "num_beams": 2, "length_penalty": float("nan")},
            OptionError,
            "length_penalty must be",
        ),
        ({"graph": 5}, GraphError, "layer 0 must be an AttentionGraph"),
        ({"tokens": [prompt()]}, ShapeError, r"a list of prompts must hold sequences \(P_i,\)"),
        ({"tokens": prompt() + V}, PositionIndexError, r"tokens must be in \[0, 11\)"),
        ({"eos": -1}, OptionError, "eos must be a whole number >= 0, got -1"),
        ({"graph": [CAUSAL, "causal"]}, GraphError, "layer 1 must be an AttentionGraph"),
        ({"graph": graphs.causal(N - 1)}, GraphError, "the graph must have at least 11 nodes"),
        (
            {"graph": graphs.causal(1, N)},
            GraphError,
            "must have at least 11 nodes, one for each token",
        ),
        ({"graph": [CAUSAL] * 3}, GraphError, "2 layers need as many graphs"),
        (
            {"graph": ga.PerExample([CAUSAL] * 2)},
            ShapeError,
            r"a graph of 2 examples needs as many prompts, tokens \(..., 2, P\) or a list, got 3",
        ),
        (
            {"graph": [ga.PerExample([CAUSAL] * 2), ga.PerExample([CAUSAL] * 3)]},
            GraphError,
            "layers must have as many examples, got graphs of 2 and 3",
        ),
        (
            {"graph": ga.PerExample([CAUSAL, CAUSAL, graphs.causal(5)])},
            GraphError,
            r"the graph must have at least 11 nodes, .* got .*causal\(5\)",
        ),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        generate(model(), **{"tokens": prompt(), "max_new_tokens": NEW, **options})


transformers = pytest.importorskip("transformers", minversion="5.15")


def theirs(kind):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 17,
    }
    if kind == "GPT2":
        sizes = {"n_embd": 12, "n_layer": 2, "n_head": 2}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=V, bos_token_id=0, attn_implementation="sdpa", **sizes
    )
    return shaken(
        getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM"))(config)
    )


@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_greedy_and_beams_of_transformers(kind):
    given, tokens = (
        theirs(kind),
        torch.randint(V, (16, P), generator=torch.Generator().manual_seed(2)),
    )
    mine = from_transformers(given)
    # so that some sequences end early
    early = generate(mine, tokens, max_new_tokens=NEW)[:, P : P + 3].mode(0).values
    for eos in (None, *early.unique().tolist()):
        rules = {
            "max_new_tokens": NEW,
            "eos_token_id": eos,
            "pad_token_id": eos,
            "do_sample": False,
        }
        rules["attention_mask"] = torch.ones_like(tokens)
        found = generate(mine, tokens, max_new_tokens=NEW, eos=eos)
        assert torch.equal(found, given.generate(tokens, **rules))
        assert eos is None or (found[:, P : P + 3] == eos).any()
        for beams, penalty in ((2, 0.0), (4, 1.0), (3, -0.5)):
            rules.update(num_beams=beams, early_stopping="never", length_penalty=penalty)
            options = {"strategy": "beam", "num_beams": beams, "length_penalty": penalty}
            found = generate(mine, tokens, max_new_tokens=NEW, eos=eos, **options)
            assert torch.equal(found, given.generate(tokens, **rules))


def test_truncation_of_transformers():
    logits = torch.randn(50, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    top_k, top_p = transformers.TopKLogitsWarper, transformers.TopPLogitsWarper
    for k, p in itertools.product((1, 3, V), (0.1, 0.5, 0.9, 1.0)):
        assert torch.equal(truncated(logits, k, p), top_p(p)(None, top_k(k)(None, logits)))
    assert not torch.equal(truncated(logits, None, 0.5), truncated(logits, None, 0.6))

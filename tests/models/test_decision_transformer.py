"""The Decision Transformer with the weights of transformers' own: three nodes a step, on a causal graph and others."""

import pytest
import torch
from text_models import in_float64, same, same_gradients, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import PositionIndexError, ShapeError
from graphattn.models import DecisionTransformer, from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")

B, T, S, A = 2, 5, 4, 3
SMALL = {"state_dim": S, "act_dim": A, "hidden_size": 12, "max_ep_len": 9, "n_positions": 31, "n_head": 3, "n_layer": 2}


def theirs(training=False, **options):
    torch.manual_seed(0)
    with in_float64():
        config = transformers.DecisionTransformerConfig(**{**SMALL, **options})
        return shaken(transformers.DecisionTransformerModel(config), training)


def given():
    draw = torch.Generator().manual_seed(1)
    tensors = [torch.randn(B, T, n, generator=draw).double() for n in (S, A, 1)]
    return *tensors, torch.randint(9, (B, T), generator=draw)


def run(model, states, actions, returns, times, **options):
    with in_float64():
        found = model(states=states, actions=actions, returns_to_go=returns, timesteps=times, **options)
    return found.action_preds, found.state_preds, found.return_preds


@pytest.mark.parametrize(
    "options",
    [{}, {"action_tanh": False, "scale_attn_by_inverse_layer_idx": True, "n_inner": 7, "layer_norm_epsilon": 1e-2}],
)
def test_predictions_and_gradients(options):
    model = theirs(**options)
    model.encoder.wpe.requires_grad_(False)  # its first row is the bias of our norm, too
    mine, expected = from_hf(model), run(model, *given())
    found = mine(*given())
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    same_gradients(mine, model, torch.cat(found, -1), torch.cat(expected, -1))


def test_an_action_reads_its_return_and_state_and_what_was_before():
    mine, (states, actions, returns, times) = from_hf(theirs()), given()
    whole = mine(states, actions, returns, times)

    def changed(*inputs, graph=None):
        other = mine(*inputs, times, graph)
        return [(a - b).abs().amax((0, 2)).gt(1e-9).tolist() for a, b in zip(other, whole, strict=True)]

    moved = [x.clone().index_add(1, torch.tensor([2]), torch.ones(B, 1, x.shape[-1]).double()) for x in given()[:3]]
    assert changed(moved[0], actions, returns) == [[t >= 2 for t in range(T)]] * 3
    assert changed(states, moved[1], returns) == [[t > 2 for t in range(T)]] + [[t >= 2 for t in range(T)]] * 2
    less = graphs.causal(3 * T) - ga.from_edge_index([[6], [7]], num_nodes=3 * T)  # the return of step 2, its state
    last = changed(states, actions, returns, graph=[graphs.causal(...), less])
    assert last == [[t == 2 for t in range(T)], [False] * T, [False] * T]


def test_trajectories_of_several_lengths_are_one():
    mine, (states, actions, returns, times) = from_hf(theirs()), given()
    lengths = (T, 3)
    real = torch.arange(T) < torch.tensor(lengths)[:, None]
    packed = ga.disjoint_union([graphs.causal(3 * n) for n in lengths])
    found = mine(*(x[real] for x in (states, actions, returns, times)), packed)
    expected = run(theirs(), states, actions, returns, times, attention_mask=real.long())
    for one, other in zip(found, expected, strict=True):
        same(one, other[real])


@pytest.mark.parametrize("place", ["embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_dropout_is_where_theirs_is(place):
    model = theirs(True, **{"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, place: 1.0})
    for one, other in zip(from_hf(model)(*given()), run(model, *given()), strict=True):
        same(one, other)


def test_refusals():
    model, (states, actions, returns, times) = DecisionTransformer(S, A, 12, max_len=9).double(), given()
    with pytest.raises(ShapeError, match=r"actions must have shape \(2, 5, 3\), got \(2, 5, 4\)"):
        model(states, states, returns, times)
    with pytest.raises(PositionIndexError, match=r"times must be in \[0, 9\)"):
        model(states, actions, returns, times + 9)

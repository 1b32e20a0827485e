"""A valid call of every public function, class and method: name -> ``lambda: (function, arguments, options)``.

The names are those of ``public()``; a test fails if one is missing here.
"""

import inspect
import tempfile
from functools import cache

import torch
from test_catalogue import SMALL
from torch import nn
from torch_geometric.data import Data

import graphattn as ga
from graphattn import graphs, interop, models
from graphattn import nn as layers

RESULTS = {
    *("AttentionOutput", "Report", "graphs.MeshReport", "graphs.ProgramGraphs"),
    *("graphs.Hierarchy", "graphs.HierarchyRecipe"),
}  # records, made by the library
ERRORS = {"GraphAttnError"}
#: What PyG's machinery calls inside of the layer, and torch's own ways to print and to start afresh.
INSIDE = {"message", "aggregate", "attend", "propagate", "extra_repr", "reset_parameters", "collect"}
FOLDER = tempfile.TemporaryDirectory()
FILE = f"{FOLDER.name}/graph.json"
SHAPE = f"{FOLDER.name}/shape.ply"
ga.save(Data(pos=torch.eye(3)), SHAPE)
TWINS = {"dense", "dense_delta", "for_layer"}  # of parts of a layer: what verify and the layer call


def of_module(module):
    """Public names of a module of this package that are no modules."""
    shown = getattr(module, "__all__", dir(module))
    found = {name: getattr(module, name) for name in shown if not name.startswith("_")}
    return {name: thing for name, thing in found.items() if callable(thing)}


def methods(kind):
    """Public methods that a class of this package has from this package."""
    own = [vars(base) for base in kind.__mro__ if base.__module__.startswith("graphattn")]
    names = sorted({name for base in own for name in base if not name.startswith("_")} - INSIDE)
    return [
        name for name in names if callable(getattr(kind, name)) and not (issubclass(kind, nn.Module) and name in TWINS)
    ]


def public():
    """Every public function, class and method by name."""
    found = []
    for room, module in (("", ga), ("graphs.", graphs), ("nn.", layers), ("models.", models)):
        for name, thing in of_module(module).items():
            if name in ERRORS:
                continue
            if f"{room}{name}" not in RESULTS:
                found.append(f"{room}{name}")
            if isinstance(thing, type):
                found += [f"{room}{name}.{method}" for method in methods(thing)]
    return found


# --- what the calls are made of

V, C, H, N = 11, 8, 2, 5


@cache
def causal():
    return graphs.causal(N)


@cache
def listed():
    return graphs.causal(N).explicit()


def pos():
    return torch.linspace(0, 1, 3 * N).sin().view(N, 3)


def features(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)


def tokens(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) % V


def levels():
    return graphs.hierarchy(pos(), ratio=0.5)


def cell_levels():
    return graphs.serialized_hierarchy(pos(), cell=1e-3, levels=2, patch=4, curves=("z",))


def point_transformer_v3():
    return models.PointTransformerV3(3, 2, (8, 8), 1, (8,), 1, head_dim=4)


def pointcept_state():
    from models.test_point_transformer_v3 import state_of

    return {name: x.float() for name, x in state_of(True).items()}


def heads():
    return ga.PerHead((causal(), graphs.full(N)))


def weights(num_heads=H):
    x = features(N, num_heads, 4)
    return ga.attention(x, x, x, causal(), return_weights=True).weights


def qkv():
    return features(N, H, 4), features(N, H, 4), features(N, H, 4)


FACES = torch.tensor([[0, 1, 2], [0, 2, 3], [2, 3, 4]])


@cache
def block_mask():
    return interop.to_block_mask(causal())


def pyg_data():
    return interop.to_pyg(causal())


@cache
def hf_model():
    import transformers

    sizes = {"vocab_size": V, "n_embd": C, "n_head": H, "n_layer": 1, "n_positions": 9}
    return transformers.GPT2Model(transformers.GPT2Config(**sizes))


def saved_hf_model():
    ga.patch(hf_model(), graphs.causal(...))
    hf_model().save_pretrained(f"{FOLDER.name}/hf")
    return f"{FOLDER.name}/hf"


def cache_of(layer):
    kept = layers.KeyValueCache()
    layer(features(1, N, C), causal(), cache=kept)
    return kept


@cache
def attention_layer():
    return layers.GraphAttention(C, H)


@cache
def block():
    return layers.TransformerBlock(C, H)


@cache
def gpt():
    return models.GPT(V, C, H, 1, max_len=9).eval()


@cache
def bert():
    return models.BERT(V, C, H, 1, max_len=9, masked_head=True)


@cache
def t5():
    return models.T5(V, C, H, 1, num_buckets=8, max_distance=6)


@cache
def vit():
    return models.ViT((8, 12), (4, 4), 1, C, H, num_classes=5)


@cache
def timesformer():
    return models.TimeSformer((2, 4, 6), (2, 2), 1, C, H, num_classes=5)


@cache
def swin():
    return models.Swin(C, (1, 1), (H, H), window=2, patch=(2, 2), num_classes=5)


@cache
def encoder():
    return models.Encoder(1, C, H)


@cache
def decoder():
    return models.Decoder(1, C, H)


@cache
def both():
    return models.EncoderDecoder(encoder(), decoder())


@cache
def graph_transformer():
    return models.GraphTransformer(5, C, H, 1, encoding_dim=3)


@cache
def hopfield():
    return models.Hopfield.from_patterns(torch.tensor([[1.0, -1, 1, -1], [1, 1, -1, -1]]))


@cache
def longformer():
    return models.Longformer((3,), vocab_size=V, embed_dim=C, num_heads=H, num_layers=1, max_len=9)


@cache
def perceiver():
    return models.Perceiver(4, C, 6, 1, H, num_blocks=2, outputs=(3, C))


@cache
def seq2seq():
    return models.Seq2Seq(V, V, embed_dim=6, hidden=C)


@cache
def experts():
    return layers.MixtureOfExperts([layers.FeedForward(C, 6) for _ in range(3)], C, 2)


@cache
def tiny_hf():
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": C, "num_hidden_layers": 1, "num_attention_heads": H, "intermediate_size": 6}
    return BertModel(BertConfig(vocab_size=V, max_position_embeddings=9, **sizes)).eval()


def call(function, *args, **options):
    return function, args, options


def of_graph(name, *args, **options):
    return lambda: (getattr(causal(), name), args, options)


def of_pattern(name, *args, **options):
    return lambda: (getattr(graphs.causal(...), name), args, options)


LINEAR = nn.Linear(C, C)

CALLS = {
    "AttentionGraph": lambda: call(ga.AttentionGraph, causal().edges, "causal", torch.device("cpu")),
    "AttentionGraph.contains": of_graph("contains", 3, 2),
    "AttentionGraph.equals": lambda: call(causal().equals, listed()),
    "AttentionGraph.explicit": of_graph("explicit"),
    "AttentionGraph.k_hop": of_graph("k_hop", 2),
    "AttentionGraph.mask": of_graph("mask"),
    "AttentionGraph.relabelled": of_graph("relabelled"),
    "AttentionGraph.relabel": of_graph("relabel", [4, 3, 2, 1, 0]),
    "AttentionGraph.reverse": of_graph("reverse"),
    "AttentionGraph.subgraph": of_graph("subgraph", [0, 3]),
    "AttentionGraph.tile_classes": of_graph("tile_classes", (2, 2)),
    "AttentionGraph.tile_counts": of_graph("tile_counts", (2, 2)),
    "AttentionGraph.to": of_graph("to", "cpu"),
    "AttentionGraph.written_as": of_graph("written_as", causal().expression),
    "AttentionGraph.with_global_tokens": of_graph("with_global_tokens", 2),
    "AttentionGraph.with_self_loops": of_graph("with_self_loops"),
    "AttentionGraph.without_self_loops": of_graph("without_self_loops"),
    "EdgeWeights": lambda: call(ga.EdgeWeights, causal(), weights().alpha),
    "EdgeWeights.dense": lambda: call(weights().dense),
    "EdgeWeights.of": lambda: call(ga.EdgeWeights.of, causal(), weights().alpha),
    "EdgeWeights.present": lambda: call(weights().present),
    "EdgeWeights.top": lambda: call(weights().top, 2),
    "Pattern": lambda: call(ga.Pattern, graphs.causal(...).expression),
    "Pattern.k_hop": of_pattern("k_hop", 2),
    "Pattern.reverse": of_pattern("reverse"),
    "Pattern.with_global_tokens": of_pattern("with_global_tokens", 2),
    "Pattern.with_self_loops": of_pattern("with_self_loops"),
    "Pattern.without_self_loops": of_pattern("without_self_loops"),
    "Pattern.__call__": lambda: call(graphs.cross(..., ...), 5, 7),
    "Pattern.__call__ of points": lambda: call(
        graphs.knn(..., 2) | graphs.cross(..., ...), pos(), batch=torch.zeros(N).long(), faces=FACES
    ),
    "reach": lambda: call(ga.reach, [causal(), heads()]),
    "EdgeTensors": lambda: call(ga.EdgeTensors, causal()),
    "PerHead": lambda: call(ga.PerHead, (causal(), graphs.full(N))),
    "PerHead.groups": lambda: call(heads().groups, 4),
    "PerHead.place": lambda: call(heads().place, 1),
    "PerHead.to": lambda: call(heads().to, "cpu"),
    "PerHead.union": lambda: call(heads().union),
    "Relations": lambda: call(ga.Relations, near=causal(), far=graphs.full(N)),
    "Relations.count": lambda: call(ga.Relations(near=causal()).count),
    "Zoo.__getitem__": lambda: call(graphs.zoo().__getitem__, "Longformer"),
    "Report.to_dict": lambda: call(ga.verify(causal(), at_most=8, gradients=False).to_dict),
    "assert_exact": lambda: call(ga.assert_exact, causal(), at_most=8, gradients=False, dtypes=(torch.float64,)),
    "attention": lambda: call(ga.attention, *qkv(), causal()),
    "audit": lambda: call(ga.audit, causal().mask(), causal()),
    "audit_config": lambda: call(ga.audit_config, hf_model().config),
    "connectivity": lambda: call(ga.connectivity, causal()),
    "disjoint_union": lambda: call(ga.disjoint_union, [causal(), listed()]),
    "explain": lambda: call(ga.explain, causal(), heads=2, head_dim=4),
    "facts": lambda: call(ga.facts, causal()),
    "find_leaks": lambda: call(ga.find_leaks, attention_layer_on_causal, features(N, C), causal()),
    "find_nonfinite": lambda: call(ga.find_nonfinite, *qkv(), causal()),
    "flops": lambda: call(ga.flops, causal(), 8, 2),
    "from_additive_mask": lambda: call(ga.from_additive_mask, torch.zeros(3, 3)),
    "from_block_mask": lambda: call(ga.from_block_mask, block_mask()),
    "from_by_target": lambda: call(ga.from_by_target, [0, 1, 3], [0, 0, 1], num_sources=2),
    "from_edge_index": lambda: call(ga.from_edge_index, torch.tensor([[0, 1], [1, 1]]), 3, 3),
    "from_mask": lambda: call(ga.from_mask, causal().mask()),
    "from_mask_mod": lambda: call(ga.from_mask_mod, lambda b, h, q, kv: q >= kv, 5, 5),
    "from_mha_mask": lambda: call(ga.from_mha_mask, causal().mask()),
    "from_networkx": lambda: call(ga.from_networkx, interop.to_networkx(causal())),
    "from_pretrained": lambda: call(ga.from_pretrained, saved_hf_model()),
    "from_pyg": lambda: call(ga.from_pyg, pyg_data()),
    "from_rule": lambda: call(ga.from_rule, lambda t, s: t >= s, 5, 5),
    "from_scipy": lambda: call(ga.from_scipy, interop.to_scipy(causal())),
    "graph_from_dict": lambda: call(ga.graph_from_dict, ga.graph_to_dict(causal())),
    "graph_to_dict": lambda: call(ga.graph_to_dict, causal()),
    "hops": lambda: call(ga.hops, causal()),
    "leaks": lambda: call(ga.leaks, causal()),
    "load": lambda: call(ga.load, SHAPE),
    "save": lambda: call(ga.save, Data(pos=torch.eye(3)), f"{FOLDER.name}/square.ply"),
    "load_graph": lambda: call(ga.load_graph, ga.save_graph(causal(), FILE) or FILE),
    "patch": lambda: call(ga.patch, hf_model(), graphs.causal(...)),
    "patched": lambda: call(ga.patched, hf_model(), graphs.causal(...)),
    "path_counts": lambda: call(ga.path_counts, causal(), [3]),
    "plot": lambda: call(ga.plot, causal()),
    "plot_heads": lambda: call(ga.plot_heads, weights()),
    "plot_receptive_field": lambda: call(ga.plot_receptive_field, causal(), 3),
    "plot_shape": lambda: call(ga.plot_shape, pos()),
    "plot_weights": lambda: call(ga.plot_weights, weights(), 3),
    "receptive_field": lambda: call(ga.receptive_field, causal(), [3]),
    "rollout": lambda: call(ga.rollout, [weights(), weights()], 0.5),
    "save_graph": lambda: call(ga.save_graph, causal(), FILE),
    "spectral_gap": lambda: call(ga.spectral_gap, graphs.full(N)),
    "tile_fill": lambda: call(ga.tile_fill, causal(), (2, 2)),
    "to_additive_mask": lambda: call(ga.to_additive_mask, causal()),
    "to_block_mask": lambda: call(ga.to_block_mask, causal()),
    "to_by_target": lambda: call(ga.to_by_target, causal()),
    "to_edge_index": lambda: call(ga.to_edge_index, causal()),
    "to_html": lambda: call(ga.to_html, causal(), "page.html", pos()),
    "to_mask": lambda: call(ga.to_mask, causal()),
    "to_mask_mod": lambda: call(ga.to_mask_mod, causal()),
    "to_mha_mask": lambda: call(ga.to_mha_mask, causal()),
    "to_networkx": lambda: call(ga.to_networkx, causal()),
    "to_pyg": lambda: call(ga.to_pyg, causal()),
    "to_pyg_edge_index": lambda: call(ga.to_pyg_edge_index, causal()),
    "to_pyg_hetero": lambda: call(ga.to_pyg_hetero, causal()),
    "to_scipy": lambda: call(ga.to_scipy, causal()),
    "universality": lambda: call(ga.universality, causal()),
    "unpatch": lambda: call(ga.unpatch, hf_model()),
    "verify": lambda: call(ga.verify, causal(), at_most=8, gradients=False, dtypes=(torch.float64,)),
    **{f"graphs.{name}": (lambda name=name: (getattr(graphs, name), (), SMALL[name])) for name in SMALL},
    "graphs.block_sparse": lambda: call(graphs.block_sparse, causal(), 2),
    "graphs.composite": lambda: call(graphs.composite, [[causal(), None], [graphs.full(N), causal()]]),
    "graphs.curve_order": lambda: call(graphs.curve_order, pos()),
    "graphs.degree_matched_random": lambda: call(graphs.degree_matched_random, causal()),
    "graphs.farthest_points": lambda: call(graphs.farthest_points, pos(), 3),
    "graphs.inverse_distance_bias": lambda: call(graphs.inverse_distance_bias, causal(), pos()),
    "graphs.line_graph": lambda: call(graphs.line_graph, causal()),
    "graphs.mesh_edge_ends": lambda: call(graphs.mesh_edge_ends, FACES),
    "graphs.mesh_report": lambda: call(graphs.mesh_report, FACES),
    "graphs.relative_position_index": lambda: call(
        graphs.relative_position_index, graphs.cell_partition((4, 4), (2, 2)), (4, 4), (2, 2)
    ),
    "graphs.CloudCache": lambda: call(graphs.CloudCache, graphs.knn(..., 2), 1000),
    "graphs.CloudCache.__call__": lambda: call(graphs.CloudCache(graphs.knn(..., 1)), pos(), torch.zeros(N).long()),
    "graphs.Hierarchy.graphs": lambda: call(levels().graphs),
    "graphs.Hierarchy.join": lambda: call(graphs.Hierarchy.join, [levels(), levels()]),
    "graphs.Hierarchy.to": lambda: call(levels().to, "cpu"),
    "graphs.Hierarchy.with_signals": lambda: call(levels().with_signals, torch.rand(N, 2)),
    "graphs.HierarchyRecipe.__call__": lambda: call(graphs.hierarchy(..., ratio=0.5), pos(), torch.zeros(N).long()),
    "graphs.hierarchy": lambda: call(
        graphs.hierarchy, pos(), torch.zeros(N).long(), ratio=(0.5, 0.5), faces=FACES, normals=pos()
    ),
    "graphs.serialized_hierarchy": lambda: call(
        graphs.serialized_hierarchy, pos(), torch.zeros(N).long(), cell=1e-3, levels=2
    ),
    "nn.CellConv": lambda: call(layers.CellConv, 3, 4),
    "nn.CellConv.forward": lambda: call(layers.CellConv(3, 4).forward, pos(), cell_levels().levels[0].near[0]),
    "nn.relative_positions": lambda: call(layers.relative_positions, causal(), pos(), pos()),
    "nn.edge_geometry": lambda: call(
        layers.edge_geometry, causal(), pos(), pos(), features=["pair"], normals=pos(), queries_normals=pos()
    ),
    "nn.local_frames": lambda: call(layers.local_frames, causal(), pos(), pos(), pos()),
    "nn.local_pca": lambda: call(layers.local_pca, causal(), pos(), pos()),
    "nn.mesh_elements": lambda: call(layers.mesh_elements, pos(), FACES, "edges", batch=torch.zeros(N).long()),
    "nn.mesh_normals": lambda: call(layers.mesh_normals, pos(), FACES),
    "nn.mesh_edge_geometry": lambda: call(layers.mesh_edge_geometry, pos(), FACES, graphs.mesh_vertices(FACES)),
    "nn.heat_distance": lambda: call(layers.heat_distance, pos(), FACES, torch.tensor([0])),
    "nn.interpolate": lambda: call(layers.interpolate, features(N, C), causal(), pos(), pos() + 1),
    "nn.pool": lambda: call(layers.pool, features(N, C), causal(), "max"),
    "nn.OffsetBias": lambda: call(layers.OffsetBias, 2, 3),
    "nn.OffsetBias.forward": lambda: call(layers.OffsetBias(2).forward, causal(), pos(), pos()),
    "nn.ContextualTable": lambda: call(layers.ContextualTable, 2, 4, 3, step=0.1),
    "nn.ContextualTable.forward": lambda: call(
        layers.ContextualTable(2, 4, 3).forward, causal(), torch.ones(N, 2, 4), torch.ones(N, 2, 4), pos(), pos()
    ),
    "nn.ContextualTable.averaged": lambda: call(
        layers.ContextualTable(2, 4, 3, values=True).averaged, causal(), torch.ones(causal().num_edges, 2), pos(), pos()
    ),
    "nn.OffsetTable": lambda: call(layers.OffsetTable, 2, 3, step=0.1),
    "nn.OffsetTable.forward": lambda: call(layers.OffsetTable(2, 3).forward, causal(), pos(), pos()),
    "nn.FourierFeatures": lambda: call(layers.FourierFeatures, 3, 4),
    "nn.FourierFeatures.forward": lambda: call(layers.FourierFeatures(3, 4).forward, pos()),
    "graphs.voxel_ids": lambda: call(graphs.voxel_ids, pos(), 0.5),
    "graphs.zoo": lambda: call(graphs.zoo),
    "nn.ALiBi": lambda: call(layers.ALiBi, H),
    "nn.ALiBi.forward": lambda: call(layers.ALiBi(H), causal()),
    "nn.DropPath": lambda: call(layers.DropPath, 0.5),
    "nn.DropPath.forward": lambda: call(layers.DropPath(0.5), features(2, N, C)),
    "nn.EdgeTable": lambda: call(layers.EdgeTable, 3, H),
    "nn.EdgeTable.forward": lambda: call(layers.EdgeTable(3, H), causal(), torch.arange(15) % 3),
    "nn.EdgeTable.rows": lambda: call(layers.EdgeTable(3, H).rows, torch.arange(15) % 3),
    "nn.FeatureScore": lambda: call(layers.FeatureScore, "elu"),
    "nn.FeatureScore.as_additive": lambda: call(
        layers.FeatureScore().as_additive, features(N, H, 4), features(N, H, 4), None
    ),
    "nn.FeatureScore.delta_in_parts": lambda: call(layers.FeatureScore().delta_in_parts),
    "nn.FeatureScore.as_dot": lambda: call(layers.FeatureScore().as_dot, features(N, H, 4), features(N, H, 4)),
    "nn.FeatureScore.forward": lambda: call(layers.FeatureScore(), features(N, H, 4), features(N, H, 4)),
    "nn.FeedForward": lambda: call(layers.FeedForward, C, 6),
    "nn.FeedForward.forward": lambda: call(layers.FeedForward(C, 6), features(N, C)),
    "nn.GraphAttention": lambda: call(layers.GraphAttention, C, H),
    "nn.GraphAttention.forward": lambda: call(attention_layer(), features(N, C), causal()),
    "nn.GraphAttention.from_pyg": lambda: call(layers.GraphAttention.from_pyg, pyg_conv()),
    "nn.GraphAttention.from_torch": lambda: call(layers.GraphAttention.from_torch, nn.MultiheadAttention(C, H)),
    "nn.GraphAttention.hold": lambda: call(attention_layer().hold, features(N, C)),
    "nn.KeyValueCache": lambda: call(layers.KeyValueCache),
    "nn.KeyValueCache.drop": lambda: call(cache_of(attention_layer()).drop, 2),
    "nn.KeyValueCache.grown": lambda: call(
        cache_of(attention_layer()).grown, features(1, 2, H, 4), features(1, 2, H, 4), attention_layer()
    ),
    "nn.KeyValueCache.keep": lambda: call(
        cache_of(attention_layer()).keep, features(1, 7, H, 4), features(1, 7, H, 4), attention_layer()
    ),
    "nn.KeyValueCache.of": lambda: call(cache_of(attention_layer()).of, attention_layer()),
    "nn.KeyValueCache.reorder": lambda: call(cache_of(attention_layer()).reorder, torch.tensor([0])),
    "nn.LearnedPosition": lambda: call(layers.LearnedPosition, 9, C),
    "nn.LearnedPosition.forward": lambda: call(layers.LearnedPosition(9, C), features(N, C)),
    "nn.LinearScaling": lambda: call(layers.LinearScaling, 2.0),
    "nn.Llama3Scaling": lambda: call(layers.Llama3Scaling, 2.0, 64),
    "nn.MixtureOfExperts": lambda: call(layers.MixtureOfExperts, [layers.FeedForward(C, 6)] * 3, C, 2),
    "nn.MixtureOfExperts.forward": lambda: call(experts(), features(N, C)),
    "nn.MixtureOfExperts.graph": lambda: call(experts().graph, features(N, C)),
    "nn.PositiveFeatures": lambda: call(layers.PositiveFeatures, 4, 6),
    "nn.PositiveFeatures.forward": lambda: call(layers.PositiveFeatures(4, 6), features(N, H, 4)),
    "nn.Rotary": lambda: call(layers.Rotary, 4),
    "nn.Rotary.forward": lambda: call(layers.Rotary(4), features(N, H, 4)),
    "nn.RotaryScaling": lambda: call(layers.RotaryScaling),
    "nn.ShortestPathBias": lambda: call(layers.ShortestPathBias, H),
    "nn.ShortestPathBias.forward": lambda: call(layers.ShortestPathBias(H), graphs.full(N), causal()),
    "nn.ShortestPathBias.lengths": lambda: call(layers.ShortestPathBias(H).lengths, graphs.full(N), causal()),
    "nn.SinusoidalPosition": lambda: call(layers.SinusoidalPosition, C),
    "nn.SinusoidalPosition.forward": lambda: call(layers.SinusoidalPosition(C), features(N, C)),
    "nn.SwinBias": lambda: call(layers.SwinBias, (2, 2), H),
    "nn.SwinBias.forward": lambda: call(layers.SwinBias((2, 2), H), graphs.cell_partition((4, 4), (2, 2)), (4, 4)),
    "nn.SwinV2Bias": lambda: call(layers.SwinV2Bias, (2, 2), H, hidden=4),
    "nn.SwinV2Bias.coordinates": lambda: call(layers.SwinV2Bias((2, 2), H, hidden=4).coordinates),
    "nn.SwinV2Bias.forward": lambda: call(
        layers.SwinV2Bias((2, 2), H, hidden=4), graphs.cell_partition((4, 4), (2, 2)), (4, 4)
    ),
    "nn.T5Bias": lambda: call(layers.T5Bias, H),
    "nn.T5Bias.bucket": lambda: call(layers.T5Bias(H).bucket, torch.arange(5)),
    "nn.T5Bias.forward": lambda: call(layers.T5Bias(H), causal()),
    "nn.TransformerBlock": lambda: call(layers.TransformerBlock, C, H, score="scaled_dot", scale=0.5),
    "nn.TransformerBlock.check": lambda: call(block().check, features(N, C)),
    "nn.TransformerBlock.forward": lambda: call(block(), features(N, C), causal()),
    "nn.TransformerBlock.from_torch": lambda: call(
        layers.TransformerBlock.from_torch, nn.TransformerEncoderLayer(C, H, 6, batch_first=True)
    ),
    "nn.grid_positions": lambda: call(layers.grid_positions, (3, 2)),
    "nn.laplacian_eigenvector_pe": lambda: call(layers.laplacian_eigenvector_pe, graphs.circulant(7, (1, 6)), 2),
    "nn.load_balancing_loss": lambda: call(layers.load_balancing_loss, features(N, 3), 2),
    "nn.random_walk_pe": lambda: call(layers.random_walk_pe, graphs.circulant(7, (1, 6)), 2),
    "nn.record_weights": lambda: call(entered(layers.record_weights), attention_layer()),
    "models.BERT": lambda: call(models.BERT, V, C, H, 1, max_len=9),
    "models.BERT.embedded": lambda: call(bert().embedded, tokens(2, 4)),
    "models.BERT.forward": lambda: call(bert(), tokens(2, 4)),
    "models.BERT.pooled": lambda: call(models.BERT(V, C, H, 1, max_len=9).pooled, features(2, 4, C)),
    "models.Decoder": lambda: call(models.Decoder, 1, C, H),
    "models.Decoder.forward": lambda: call(decoder(), features(2, N, C), causal(), features(2, 3, C)),
    "models.Decoder.from_torch": lambda: call(
        models.Decoder.from_torch, nn.TransformerDecoder(nn.TransformerDecoderLayer(C, H, 6, batch_first=True), 1)
    ),
    "models.Decoder.encodes_positions": lambda: call(decoder().encodes_positions),
    "models.Decoder.hold": lambda: call(decoder().hold, features(2, N, C)),
    "models.Encoder": lambda: call(models.Encoder, 1, C, H),
    "models.Encoder.forward": lambda: call(encoder(), features(2, N, C), causal()),
    "models.Encoder.from_torch": lambda: call(
        models.Encoder.from_torch,
        nn.TransformerEncoder(nn.TransformerEncoderLayer(C, H, 6, batch_first=True), 1, enable_nested_tensor=False),
    ),
    "models.Encoder.encodes_positions": lambda: call(encoder().encodes_positions),
    "models.EncoderDecoder": lambda: call(models.EncoderDecoder, encoder(), decoder()),
    "models.EncoderDecoder.forward": lambda: call(
        both(), features(2, N, C), features(2, N, C), graphs.full(...), graphs.causal(...)
    ),
    "models.EncoderDecoder.from_torch": lambda: call(
        models.EncoderDecoder.from_torch, nn.Transformer(C, H, 1, 1, 6, batch_first=True)
    ),
    "models.GPT": lambda: call(models.GPT, V, C, H, 1),
    "models.GPT.begin": lambda: call(gpt().begin, 2, 5),
    "models.GPT.forward": lambda: call(gpt(), tokens(2, 4)),
    "models.GPT.tie": lambda: call(gpt().tie),
    "models.GraphTransformer": lambda: call(models.GraphTransformer, 5, C, H, 1),
    "models.GraphTransformer.encoded": lambda: call(graph_transformer().encoded, graphs.circulant(7, (1, 6)), (7,)),
    "models.GraphTransformer.forward": lambda: call(graph_transformer(), features(7, 5), graphs.circulant(7, (1, 6))),
    "models.Hopfield": lambda: call(models.Hopfield, graphs.full(4).without_self_loops(), torch.ones(12)),
    "models.Hopfield.energy": lambda: call(hopfield().energy, torch.tensor([1.0, -1, 1, 1])),
    "models.Hopfield.field": lambda: call(hopfield().field, torch.tensor([1.0, -1, 1, 1])),
    "models.Hopfield.from_patterns": lambda: call(models.Hopfield.from_patterns, torch.tensor([[1.0, -1, 1, -1]])),
    "models.Hopfield.settle": lambda: call(hopfield().settle, torch.tensor([1.0, -1, 1, 1])),
    "models.Hopfield.step": lambda: call(hopfield().step, torch.tensor([1.0, -1, 1, 1])),
    "models.Hopfield.turn": lambda: call(hopfield().turn, torch.tensor([1.0, -1, 1, 1]), 2),
    "models.Longformer": lambda: call(
        models.Longformer, (3,), vocab_size=V, embed_dim=C, num_heads=H, num_layers=1, max_len=9
    ),
    "models.Longformer.forward": lambda: call(longformer(), tokens(2, 4)),
    "models.Longformer.pooled": lambda: call(longformer().pooled, features(2, 4, C)),
    "models.PointTransformer": lambda: call(models.PointTransformer, 3, 2, (8, 8), 1, share=4),
    "models.PointTransformer.forward": lambda: call(
        models.PointTransformer(3, 2, (8, 8), 1, share=4).forward, pos(), levels()
    ),
    "models.PointTransformerV3": lambda: call(models.PointTransformerV3, 3, 2, (8, 8), 1, (8,), 1, head_dim=4),
    "models.PointTransformerV3.forward": lambda: call(point_transformer_v3().forward, pos(), cell_levels()),
    "models.PointTransformerV3.encoded": lambda: call(point_transformer_v3().encoded, pos(), cell_levels()),
    "models.PointTransformerV3.embedded": lambda: call(point_transformer_v3().embedded, pos(), cell_levels()),
    "models.PointTransformerV3.from_pointcept": lambda: call(
        models.PointTransformerV3.from_pointcept, pointcept_state(), head_dim=4
    ),
    "models.StratifiedTransformer": lambda: call(models.StratifiedTransformer, 3, 2, (8, 8), 1, 2, step=0.1, reach=4),
    "models.StratifiedTransformer.forward": lambda: call(
        models.StratifiedTransformer(3, 2, (8, 8), 1, 2).forward, pos(), levels()
    ),
    "models.PointTransformerV2": lambda: call(models.PointTransformerV2, 3, 2, (8, 8), 1, channels=4),
    "models.PointTransformerV2.forward": lambda: call(
        models.PointTransformerV2(3, 2, (8, 8), 1, channels=4).forward, pos(), levels()
    ),
    "models.UNet": lambda: call(models.UNet, 3, 2, (8, 8), 2, edges=("distance",)),
    "models.UNet.forward": lambda: call(models.UNet(3, 2, (8, 8), 2).forward, pos(), levels()),
    "models.EncodeProcessDecode": lambda: call(models.EncodeProcessDecode, 3, 2, 8, 2, 1),
    "models.EncodeProcessDecode.forward": lambda: call(
        models.EncodeProcessDecode(3, 2, 8, 2, 1, target_features=3).forward,
        *(pos(), levels(), graphs.cross(N, 3)),
        queries=pos(),
        targets=pos(),
    ),
    "models.MeshTransformer": lambda: call(models.MeshTransformer, 3, 2, 8, 2, 1, spectrum=2),
    "models.MeshTransformer.forward": lambda: call(
        models.MeshTransformer(3, 2, 8, 2, 1, spectrum=2, edges=["distance"]).forward,
        pos(),
        graphs.hierarchy(pos(), graph=graphs.mesh_vertices(...), faces=FACES),
    ),
    "models.PCT": lambda: call(models.PCT, 3, 2, (8, 8), 1),
    "models.PCT.forward": lambda: call(
        models.PCT(3, 2, (8, 8), 1).forward, pos(), graphs.hierarchy(pos(), ratio=0.5, graph=graphs.full(...))
    ),
    "models.Perceiver": lambda: call(models.Perceiver, 4, C, 6, 1, H),
    "models.Perceiver.forward": lambda: call(perceiver(), features(2, 9, 6)),
    "models.Seq2Seq": lambda: call(models.Seq2Seq, V, V, embed_dim=6, hidden=C),
    "models.Seq2Seq.begun": lambda: call(seq2seq().begun, tokens(2, 4)),
    "models.Seq2Seq.encode": lambda: call(seq2seq().encode, tokens(2, 4)),
    "models.Seq2Seq.forward": lambda: call(seq2seq(), tokens(2, 4), tokens(2, 3)),
    "models.Seq2Seq.reading": lambda: call(seq2seq().reading, tokens(2, 4)),
    "models.Seq2Seq.step": lambda: call(seq2seq().step, tokens(2, 1), seq2seq().begun(tokens(2, 4)), None),
    "models.Swin": lambda: call(models.Swin, C, (1, 1), (H, H), window=2, patch=(2, 2)),
    "models.Swin.features": lambda: call(swin().features, features(1, 3, 8, 8)),
    "models.Swin.forward": lambda: call(swin(), features(1, 3, 8, 8)),
    "models.Swin.grids": lambda: call(swin().grids, (8, 8)),
    "models.Swin.hidden": lambda: call(swin().hidden, features(1, 3, 8, 8)),
    "models.Swin.graphs": lambda: call(swin().graphs, (8, 8)),
    "models.T5": lambda: call(models.T5, V, C, H, 1),
    "models.T5.decode": lambda: call(t5().decode, tokens(2, 4), features(2, N, C)),
    "models.T5.encode": lambda: call(t5().encode, tokens(2, 4)),
    "models.T5.forward": lambda: call(t5(), tokens(2, 4), tokens(2, 3)),
    "models.T5.reading": lambda: call(t5().reading, tokens(2, 4)),
    "models.T5.tie": lambda: call(t5().tie),
    "models.TimeSformer": lambda: call(models.TimeSformer, (2, 4, 6), (2, 2), 1, C, H),
    "models.TimeSformer.features": lambda: call(timesformer().features, features(1, 3, 2, 4, 6)),
    "models.TimeSformer.forward": lambda: call(timesformer(), features(1, 3, 2, 4, 6)),
    "models.TimeSformer.nodes": lambda: call(timesformer().nodes, features(1, 3, 2, 4, 6)),
    "models.ViT": lambda: call(models.ViT, (8, 12), (4, 4), 1, C, H),
    "models.ViT.features": lambda: call(vit().features, features(1, 3, 8, 12)),
    "models.ViT.forward": lambda: call(vit(), features(1, 3, 8, 12)),
    "models.ViT.graphs": lambda: call(vit().graphs),
    "models.ViT.nodes": lambda: call(vit().nodes, features(1, 3, 8, 12)),
    "models.ViT.pooled": lambda: call(vit().pooled, features(1, 7, C)),
    "models.from_hf": lambda: call(models.from_hf, tiny_hf()),
    "models.generate": lambda: call(models.generate, gpt(), tokens(1, 4), max_new_tokens=2),
    "models.gpt2": lambda: call(models.gpt2, V, C, H, 1, max_len=9),
    "models.llama": lambda: call(models.llama, V, C, H, 1, 6),
    "models.log_probability": lambda: call(models.log_probability, gpt(), tokens(1, 4), 2),
    "models.longformer_graphs": lambda: call(models.longformer_graphs, (3, 5)),
    "models.retrieval_energy": lambda: call(models.retrieval_energy, features(3, C), features(5, C), 2.0),
    "models.retrieve": lambda: call(models.retrieve, features(3, C), features(5, C), 2.0),
}


def attention_layer_on_causal(x):
    return attention_layer()(x, causal())


def pyg_conv():
    from torch_geometric.nn import TransformerConv

    return TransformerConv(C, 4, heads=H)


def entered(manager):
    """A context manager, entered and left."""

    def enter(*args, **options):
        with manager(*args, **options):
            pass

    enter.__signature__ = inspect.signature(manager)
    return enter

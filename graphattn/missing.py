"""What to use in the place of a public name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module

#: Rooms in which a name is looked for, each beside what it has of other libraries.
_ROOMS = (
    "graphs",
    "nn",
    "models",
    "analysis",
    "convert",
    "shapes",
    "viz",
    "study",
    "distributed",
    "nulls",
    "laws",
)
#: Names of torch and PyG.
_FOREIGN = {
    "MultiheadAttention": "nn.GraphAttention(embed_dim, num_heads), and of weights "
    "nn.GraphAttention.from_torch(mha)",
    "TransformerConv": "nn.GraphAttention, which is a MessagePassing",
    "GATConv": "nn.GraphAttention, which is a MessagePassing",
    "GATv2Conv": "nn.GraphAttention, which is a MessagePassing",
    "TransformerEncoder": "models.Encoder",
    "TransformerEncoderLayer": "nn.TransformerBlock",
    "Transformer": "models.EncoderDecoder",
    "scaled_dot_product_attention": "attention, whose tensors are node-first",
    "flex_attention": "attention",
    "create_block_mask": "convert.from_mask_mod",
}
#: Names before version 0.3, each beside the way to it.
_RENAMED = {
    "asymmetric_window": "graphs.sliding_window(num_targets, (left, right))",
    "grid_sample": "graphs.voxel_downsample",
    "hierarchical": "graphs.coarse_to_fine",
    "fixed": "graphs.sparse_fixed",
    "strided": "graphs.sparse_strided",
    "offset": "graphs.shifted",
    "ranked": "graphs.causal_by_rank",
    "random_sources": "graphs.random_neighbours",
    "interpolate": "nn.inverse_distance_interpolate",
    "EdgeTable": "nn.EdgeTypeBias",
    "analyse": "analysis",
    "find_leaks": "analysis.measure_leaks",
    "from_hf": "models.from_transformers",
    "gpt2": "models.GPT.gpt2",
    "llama": "models.GPT.llama",
    "Reading": "models.DecoderWithMemory",
    "retrieve": "models.hopfield.retrieve",
    "retrieval_energy": "models.hopfield.retrieval_energy",
}


def instead_of(name: str, package: str, names: Iterable[str]) -> str:
    """The end of a message about a name that ``package``, which has ``names``, does not have."""
    if name in _FOREIGN:
        return f"; here it is graphattn.{_FOREIGN[name]}"
    if name in _RENAMED:
        return renamed(name)
    for room in _ROOMS:
        if package != f"graphattn.{room}" and name in dir(import_module(f"graphattn.{room}")):
            return f"; it is graphattn.{room}.{name}"
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return ""


def renamed(name: str) -> str:
    """The end of a message about a name before version 0.3; nothing for any other."""
    if name not in _RENAMED:
        return ""
    return f"; it is graphattn.{_RENAMED[name]}"

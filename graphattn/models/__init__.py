"""Models of papers as stacks of blocks, whose graph is an argument of their forward.

Its public names::

    BERT: Tokens, blocks on a full graph; features, or masked-token logits.
    EncodeProcessDecode: Features of fine points, blocks on coarse ones, outputs for any points.
    from_transformers: The model of this library with the weights and outputs of one of transformers.
    generate: A prompt and the tokens that a model generates after it, along any graph.
    GPSBlock: Local messages plus attention, then a feed-forward with both.
    GPT: Tokens, blocks on a causal graph, and the logits of the next token.
    GraphTransformer: Nodes with features, blocks of attention; outputs per node or per graph.
    Hopfield: Spins of -1 and 1 on a graph, flipped by their neighbours' field.
    MeshGraphNet: Edges updated from both of their ends, nodes from the sum of their edges.
    MeshTransformer: Tokens of a mesh that read their neighbours; outputs per token or per mesh.
    PCT: Neighbourhoods grouped from level to level, offset-attention on the coarsest.
    PointTransformer: Vector attention on each level of a hierarchy; per point or per cloud.
    PointTransformerV2: Grouped vector attention on each level of a grid; per point or per cloud.
    PointTransformerV3: A convolution around every cell and attention along a curve, on each level.
    DecoderWithMemory: A decoder with its memory, as a model of the generated tokens, like a GPT.
    Seq2Seq: A recurrent encoder and a decoder that reads its states along a bipartite graph.
    Decoder: Blocks of self-attention, then cross-attention to a memory.
    Encoder: Blocks of self-attention.
    EncoderDecoder: The transformer: an encoder's output is the memory that a decoder reads.
    Simulator: A model of meshes or points that steps the fields of a trajectory.
    StratifiedTransformer: Blocks on levels, whose scores and values depend on quantised offsets.
    Swin: Local attention in cells, and coarser grids from stage to stage.
    T5: Source and target tokens; the logits of the next target token.
    UNet: Blocks on each level of a hierarchy, down and up; per point or per cloud.
    Window: What a simulator reads of a trajectory and predicts.
    ViT: Patches after a class token, an encoder, a head; for videos it is a ViViT.
"""

from ..lazy import public_names as _public_names
from .from_transformers import from_transformers as from_transformers
from .generation import generate as generate
from .hopfield import Hopfield as Hopfield
from .images.swin import Swin as Swin
from .images.vit import ViT as ViT
from .networks.gps import GPSBlock as GPSBlock
from .networks.graph_transformer import GraphTransformer as GraphTransformer
from .points.encode_process_decode import EncodeProcessDecode as EncodeProcessDecode
from .points.mesh_graph_net import MeshGraphNet as MeshGraphNet
from .points.mesh_transformer import MeshTransformer as MeshTransformer
from .points.pct import PCT as PCT
from .points.point_transformer import PointTransformer as PointTransformer
from .points.point_transformer_v2 import PointTransformerV2 as PointTransformerV2
from .points.point_transformer_v3 import PointTransformerV3 as PointTransformerV3
from .points.simulator import Simulator as Simulator
from .points.simulator import Window as Window
from .points.stratified_transformer import StratifiedTransformer as StratifiedTransformer
from .points.unet import UNet as UNet
from .stacks import Decoder as Decoder
from .stacks import Encoder as Encoder
from .stacks import EncoderDecoder as EncoderDecoder
from .text.bert import BERT as BERT
from .text.gpt import GPT as GPT
from .text.rnn import Seq2Seq as Seq2Seq
from .text.t5 import T5 as T5
from .text.with_memory import DecoderWithMemory as DecoderWithMemory

__getattr__, __dir__, __all__ = _public_names(__name__)

"""Models of papers as stacks of blocks, whose graph is an argument of their forward."""

from types import ModuleType as _Module

from .bert import BERT as BERT
from .encode_process_decode import EncodeProcessDecode as EncodeProcessDecode
from .from_hf import from_hf as from_hf
from .generation import generate as generate
from .gps import GPSBlock as GPSBlock
from .gpt import GPT as GPT
from .gpt import gpt2 as gpt2
from .gpt import llama as llama
from .graph_transformer import GraphTransformer as GraphTransformer
from .hopfield import Hopfield as Hopfield
from .hopfield import retrieval_energy as retrieval_energy
from .hopfield import retrieve as retrieve
from .longformer import Longformer as Longformer
from .mesh_transformer import MeshTransformer as MeshTransformer
from .pct import PCT as PCT
from .perceiver import Perceiver as Perceiver
from .point_transformer import PointTransformer as PointTransformer
from .point_transformer_v2 import PointTransformerV2 as PointTransformerV2
from .point_transformer_v3 import PointTransformerV3 as PointTransformerV3
from .reading import Reading as Reading
from .rnn import Seq2Seq as Seq2Seq
from .stacks import Decoder as Decoder
from .stacks import Encoder as Encoder
from .stacks import EncoderDecoder as EncoderDecoder
from .stratified_transformer import StratifiedTransformer as StratifiedTransformer
from .swin import Swin as Swin
from .t5 import T5 as T5
from .timesformer import TimeSformer as TimeSformer
from .unet import UNet as UNet
from .vit import ViT as ViT

#: The names that ``help`` and ``dir`` show, without the files of this room.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _Module)
]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))

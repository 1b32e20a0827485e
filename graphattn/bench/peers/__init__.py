"""Everyone who runs side by side: our backends as they are registered, and what people would use otherwise."""

from ...backends.choose import BACKENDS
from .base import Peer as Peer
from .by_hand import ByHand
from .dgl import DGL
from .own import Own
from .pyg import CompiledTransformerConv, TransformerConv
from .sdpa import BareSDPA, Flex, MaskedSDPA
from .swin import Swin

OTHERS = (TransformerConv, CompiledTransformerConv, ByHand, DGL, MaskedSDPA, BareSDPA, Flex, Swin)


def all_peers() -> dict[str, Peer]:
    """Every peer by name, "auto" first: it is what the others are compared with."""
    own: list[Peer] = [Own(name) for name in ("auto", *BACKENDS)]
    return {peer.name: peer for peer in [*own, *(make() for make in OTHERS)]}

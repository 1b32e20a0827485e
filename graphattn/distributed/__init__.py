"""One graph for many processes: each owns targets and receives the sources' rows."""

from ..lazy import public_names as _public_names
from .files import EdgeFiles as EdgeFiles
from .files import Part as Part
from .files import save_parts as save_parts
from .loss import mean as mean
from .neighbours import knn_parts as knn_parts
from .norms import sync_batch_norms as sync_batch_norms
from .plans import Report as Report
from .shards import Shard as Shard
from .shards import shard as shard

__getattr__, __dir__, __all__ = _public_names(__name__)

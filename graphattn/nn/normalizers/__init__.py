"""Normalisations: weights from the scores of a target's edges."""

# isort: off
from .base import NORMALIZERS as NORMALIZERS
from .base import DenseNormalizer as DenseNormalizer
from .base import Normalizer as Normalizer
from .base import optional_arguments as optional_arguments
from .base import entry_of as entry_of
from .base import make_normalizer as make_normalizer
from .softmax import SinkSoftmax as SinkSoftmax
from .softmax import softmax as softmax
from .sigmoid import Sigmoid as Sigmoid
from .sparse import hard as hard
from .sparse import sparsemax as sparsemax
from .sums import by_sum as by_sum
from .sums import none as none

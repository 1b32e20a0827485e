"""Models of papers whose attention no patch reaches, as examples of models of your own.

Longformer, LongT5, Perceiver IO and TimeSformer, equal to those of ``transformers`` with their
weights.
"""

from .from_transformers import from_transformers as from_transformers
from .longformer import Longformer as Longformer
from .longt5 import LongT5 as LongT5
from .perceiver import Perceiver as Perceiver
from .timesformer import TimeSformer as TimeSformer

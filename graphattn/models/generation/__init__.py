"""Text from a model, token by token, each along the last row of the sequence's graph."""

from .continuation import Continuation as Continuation
from .generate import generate as generate

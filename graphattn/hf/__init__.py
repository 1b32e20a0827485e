"""Hugging Face models on any graph, in place, with Trainer, ``generate``, saving and adapters."""

from ..lazy import public_names as _public_names
from .audit import audit_config as audit_config
from .patch import from_pretrained as from_pretrained
from .patch import patch as patch
from .patch import patched as patched
from .patch import unpatch as unpatch

__getattr__, __dir__, __all__ = _public_names(__name__)

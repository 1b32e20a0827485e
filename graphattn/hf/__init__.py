"""Hugging Face models on any graph, in place, with Trainer, ``generate``, saving and adapters."""

from .audit import audit_config as audit_config
from .patch import from_pretrained as from_pretrained
from .patch import patch as patch
from .patch import patched as patched
from .patch import unpatch as unpatch

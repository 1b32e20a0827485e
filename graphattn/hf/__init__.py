"""Any Hugging Face model on any graph, in place: Trainer, ``generate``, ``save_pretrained`` and
adapters still work.
"""

from .audit import audit_config as audit_config
from .patch import from_pretrained as from_pretrained
from .patch import patch as patch
from .patch import patched as patched
from .patch import unpatch as unpatch

"""Training on folders of shapes: a trained model, its scores, a page and coloured files."""

from types import ModuleType as _Module

from .compare import compare as compare
from .evaluate import evaluate as evaluate
from .evaluation import Evaluation as Evaluation
from .options import Options as Options
from .options import Schedule as Schedule
from .predict import predict as predict
from .reading.inputs import Inputs as Inputs
from .run import Run as Run
from .running.captured import Captured as Captured
from .running.loop import Progress as Progress
from .train import resume as resume
from .train import train as train

#: What ``help`` and ``dir`` show: not the files of this room.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _Module)
]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))

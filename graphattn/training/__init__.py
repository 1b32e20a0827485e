"""Training on folders of shapes and simulations: a trained model, its scores and a page."""

from ..lazy import public_names as _public_names
from .compare import compare as compare
from .evaluate import evaluate as evaluate
from .evaluation import Evaluation as Evaluation
from .options import Options as Options
from .options import Schedule as Schedule
from .predict import predict as predict
from .reading.inputs import ShapeInputs as ShapeInputs
from .rollout import rollout as rollout
from .run import Run as Run
from .running.captured import Captured as Captured
from .running.loop import Progress as Progress
from .train import resume as resume
from .train import train as train

__getattr__, __dir__, __all__ = _public_names(__name__)

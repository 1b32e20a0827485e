"""Train a model on a folder of shapes, and resume a run."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from ..arguments import device as device_here
from ..arguments import function
from ..convert.files._guard import PathLike
from ..errors import OptionError
from .checkpoint import safetensors
from .chosen import check_labels
from .data import same_files
from .evaluation import Evaluation
from .fit import fit
from .loop import Progress, Tell
from .options import Options
from .ranges import RANGES
from .resolve import resolve
from .run import CHECKPOINT, Run
from .team import team


def train(
    folder: PathLike,
    out: PathLike,
    *,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Evaluation:
    """Train on a folder of shapes, measure on those held out, and write everything into ``out``.

    Under ``torchrun`` every process computes on its shapes of each batch, or with ``shard`` on its
    points, and rank 0 writes and reports.

    Args:
        folder: Folder of shapes, as :class:`graphattn.shapes.ShapeFolder` reads it.
        out: A new folder for the run.
        tell: Called with a :class:`Progress` after every batch.
        on_epoch: Called with the line of the log at the end of every epoch of the model and of its
            controls: ``phase``, ``epoch``, ``loss``, ``val_loss``, ``val_miou``, ... The folder has
            them in ``metrics.csv``, too.
        **options: Fields of :class:`Options`: ``model``, ``epochs``, ``seed``, ``lr``, ...

    Returns:
        The scores on the held-out part; on the validation part, or all shapes, where there is none.

    Raises:
        LoaderError: With the file that is wrong, or that cannot be written.
        OptionError: If ``out`` holds a run already, or an option cannot be.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> from pathlib import Path
        >>> root = Path(tempfile.mkdtemp())
        >>> for name, height in (("flat", 0.1), ("tall", 1.0)):
        ...     (root / name).mkdir()
        ...     for number in range(10):
        ...         pos = torch.rand(40, 3) * torch.tensor([1.0, 1.0, height])
        ...         ga.save(ga.shapes.Shape(pos=pos), root / name / f"{number}.ply")
        >>> scores = train(root, root.with_suffix(".run"), epochs=2, control=False)
        >>> scores.scores["shapes"]
        4
    """
    safetensors()
    progress = _callback(tell, on_epoch)
    settings = Options.of(options)
    shapes = settings.shapes(folder)
    run = resolve(settings, shapes, out)
    with team(run.schedule.device) as processes, ExitStack() as lock:

        def begin() -> None:
            lock.enter_context(run.alone())
            run.save()

        processes.first_does(begin)
        try:
            return fit(run, shapes, progress, processes)
        except OptionError:  # a batch that does not fit: the next try may name this folder
            if processes.first:
                _discard(run)
            raise


def resume(
    out: PathLike,
    folder: PathLike | None = None,
    *,
    device: str | None = None,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Evaluation:
    """Resume a run that was interrupted; on one thread of one kind of CPU to the same bits.

    Under ``torchrun`` a run may go on in another number of processes; the same number gives the
    same bits.

    Args:
        out: The folder of the run.
        folder: Folder of the shapes, if they have moved.
        device: Device of the model from now on; by default that of the run.
        tell, on_epoch: As in :func:`train`.

    Raises:
        LoaderError: If a file has changed since training began, or ``out`` holds no run.
    """
    safetensors()
    progress = _callback(tell, on_epoch)
    run = Run.load(out)
    if device is not None:
        run = replace(run, schedule=replace(run.schedule, device=device))
    device_here(run.schedule.device, numbers=True)
    if folder is None:
        folder = run.folder
    shapes = run.shapes(folder)
    same_files(shapes, run.files)
    check_labels(shapes, run.task.readout, run.inputs.elements)
    with team(run.schedule.device) as processes, ExitStack() as lock:
        processes.first_does(lambda: lock.enter_context(run.alone()))
        return fit(run, shapes, progress, processes)


def _callback(tell: Tell | None, on_epoch: Callable[[dict[str, Any]], None] | None) -> Tell:
    """One function that calls those of the caller."""
    if tell is not None:
        function(tell, "tell", "progress")
    if on_epoch is not None:
        function(on_epoch, "on_epoch", "line")

    def call(progress: Progress) -> None:
        if tell is not None:
            tell(progress)
        if on_epoch is not None and progress.epoch is not None:
            on_epoch({"phase": progress.phase, **progress.epoch})

    return call


def _discard(run: Run) -> None:
    """Remove what a run has written, unless it has begun to train."""
    if (run.path / CHECKPOINT).is_file():
        return
    for name in (RANGES, "run.json"):
        (run.path / name).unlink(missing_ok=True)
    with suppress(OSError):  # other files are there
        run.path.rmdir()

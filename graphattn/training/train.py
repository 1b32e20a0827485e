"""Train a model on a folder of shapes, and resume a run."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..arguments import device as device_here
from ..arguments import function
from ..errors import OptionError
from ..io.reading import PathLike
from .chosen import check_labels
from .continued import OF_THE_LOOP, begun, changed, continued, same_settings
from .evaluation import Evaluation
from .fit import fit
from .options import Options
from .reading.data import same_files
from .reading.ranges import RANGES
from .reading.simulations import TrajectoryFolder
from .resolve import resolve
from .run import CHECKPOINT, Run
from .running.checkpoint import safetensors
from .running.loop import Progress, Tell
from .running.signals import signals
from .running.team import Team, team
from .simulate import resolve_simulation


def train(
    folder: PathLike,
    out: PathLike,
    *,
    finish: bool = False,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Evaluation:
    """Train on a folder of shapes or simulations, measure on those held out, and write it all.

    Where ``out`` holds a run of these settings and files, it goes on, so that a command that is
    repeated (``torchrun --max-restarts``, ``sbatch --requeue``) begins or continues; ``epochs``,
    ``patience``, ``workers``, ``device`` and the number of processes may be others. Those that
    are not given are the run's, and so is all else where only settings of the loop are given. SIGINT, SIGTERM
    and SIGUSR1 end it after the step, with a state, unless the caller handles them; a second signal
    ends it at once.

    Under ``torchrun`` every process computes on its shapes of each batch, or with ``shard`` on its
    points, and rank 0 writes and reports.

    Args:
        folder: Folder of shapes, as :class:`graphattn.shapes.ShapeFolder` reads it; with
            ``task="simulate"`` of trajectories, as :func:`graphattn.shapes.load_trajectories` does.
        out: The folder of the run, which is made.
        finish: True to train no further: the best epoch so far is measured, and its page written.
        tell: Called with a :class:`Progress` after every batch.
        on_epoch: Called with the line of the log at the end of every epoch of the model and of its
            controls: ``phase``, ``epoch``, ``loss``, ``val_loss``, ``val_miou``, ... The folder has
            them in ``metrics.csv``, too.
        **options: Fields of :class:`Options`: ``model``, ``epochs``, ``seed``, ``lr``, ...

    Returns:
        The scores on the held-out part; on the validation part, or all shapes, where there is none.

    Raises:
        LoaderError: With the file that is wrong, or that cannot be written.
        OptionError: If ``out`` holds a run of other settings, or an option cannot be.
        Interrupted: If a signal ended it, a ``SystemExit`` with status 128 and the signal's number;
            ``KeyboardInterrupt`` for SIGINT.

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
    settings = Options(**options)
    option_names = [name for name, value in options.items() if value is not None]
    with _warnings_kept() as warned:
        before = begun(out)
        # the next training would take files of the run for shapes
        if before is None and Path(out).resolve() == Path(folder).resolve():
            raise OptionError(f"out must be a folder of its own, got that of the shapes, {out}")
        if before is not None and {*option_names} <= OF_THE_LOOP:
            shapes = before.read_folder(folder)
            new = same_settings(before, shapes, options)
        else:
            shapes = settings.read_folder(folder)
            if isinstance(shapes, TrajectoryFolder):
                new = resolve_simulation(settings, shapes, out)
            else:
                new = resolve(settings, shapes, out)
        is_new = not (new.path / "run.json").exists()
        with _together(new) as (processes, lock):

            def begin() -> Run:
                lock.enter_context(new.alone())
                return continued(new, option_names)

            run = processes.first_does(begin)
            try:
                return fit(run, shapes, progress, processes, finish, warned)
            except OptionError:  # a batch that does not fit: the next try may have other options
                if processes.first and is_new and not (run.path / CHECKPOINT).is_file():
                    for name in (RANGES, "run.json"):
                        (run.path / name).unlink(missing_ok=True)
                    with suppress(OSError):  # other files are there
                        run.path.rmdir()
                raise


def resume(
    out: PathLike,
    folder: PathLike | None = None,
    *,
    device: str | None = None,
    epochs: int | None = None,
    workers: int | None = None,
    finish: bool = False,
    tell: Tell | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Evaluation:
    """Resume a run that was interrupted; on one thread of one kind of CPU to the same bits.

    Under ``torchrun`` a run may go on in another number of processes; the same number gives the
    same bits.

    Args:
        out: The folder of the run.
        folder: Folder of the shapes, if they have moved.
        device, epochs, workers: Device of the model, largest number of epochs and processes that
            make batches from now on; by default those of the run.
        finish, tell, on_epoch: As in :func:`train`.

    Raises:
        LoaderError: If a file has changed since training began, or ``out`` holds no run.
    """
    safetensors()
    progress = _callback(tell, on_epoch)
    run = Run.load(out)
    schedule = run.schedule
    if device is not None:
        schedule = replace(schedule, device=device)
    if epochs is not None:
        schedule = replace(schedule, epochs=epochs)
    if workers is not None:
        schedule = replace(schedule, workers=workers)
    if folder is None:
        folder = run.folder
    run = replace(run, schedule=schedule, folder=Path(folder))
    device_here(run.schedule.device, numbers=True)
    with _warnings_kept() as warned:
        shapes = run.read_folder(run.folder)
        same_files(shapes, run.files)
        check_labels(shapes, run.task.readout, run.inputs.elements)
        with _together(run) as (processes, lock):

            def begin() -> None:
                lock.enter_context(run.alone())
                changed(run)

            processes.first_does(begin)
            return fit(run, shapes, progress, processes, finish, warned)


@contextmanager
def _warnings_kept() -> Iterator[list[str]]:
    """The texts of the user warnings that are shown meanwhile, each once."""
    texts: list[str] = []
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in texts:
            texts.append(str(message))
        shown(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield texts
    finally:
        warnings.showwarning = shown


@contextmanager
def _together(run: Run) -> Iterator[tuple[Team, ExitStack]]:
    """The processes that train a run, which signals end after a step, and locks of the first."""
    with (
        signals(run.path) as sent,
        team(run.schedule.device, sent) as processes,
        ExitStack() as lock,
    ):
        yield processes, lock


def _callback(tell: Tell | None, on_epoch: Callable[[dict[str, Any]], None] | None) -> Tell:
    """A function that calls those of the caller."""
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

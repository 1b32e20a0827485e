"""The training loop: epochs of packed batches, resumable checkpoints, early stopping.

Nothing is drawn from a generator that runs on: what a step draws is seeded by the run's seed, the
epoch and the batch. A state is then the parameters, the moments of the optimizer and a position.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ...backends.device import ran_out_of_memory
from ...distributed.exchange import Processes
from ...distributed.norms import SyncedNorm, sync_batch_norms
from ...errors import OptionError
from ...io.schema import written
from ...io.tables import comma_separated
from ...io.writing import save_page
from ...shapes.batches import mixed
from ...shapes.seeded import seeded
from ..options import Schedule
from ..reading.data import Prepared
from ..tasks import Task
from .checkpoint import fill, part, prefixed, save_state
from .feeding import Batch, Feed
from .team import Team, own_points


class Progress(NamedTuple):
    """Progress of a run: ``done`` of 1, a report in words, and the line of an epoch that ends."""

    phase: str
    done: float
    words: str = ""
    epoch: dict[str, Any] | None = None


Tell = Callable[[Progress], None]
READ = 16  # steps whose losses are read at once: reading synchronizes with the device


@dataclass
class TrainingState:
    """A model in training: everything that a state on the disk holds."""

    model: nn.Module
    task: Task
    schedule: Schedule
    train: Prepared
    val: Prepared
    phase: str = "training"
    team: Team = field(default_factory=Team)
    history: list[dict[str, Any]] = field(default_factory=list)
    # of losses and shapes of this epoch
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    best: dict[str, Tensor] = field(default_factory=dict)
    # losses on the device, with the numbers of shapes that they are means of
    unread: list[tuple[Tensor, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        schedule = self.schedule
        self.model.to(schedule.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), schedule.lr, weight_decay=schedule.weight_decay, fused=True
        )
        if schedule.shard:
            self.share = (0, 1)
        else:
            self.share = (self.team.processes.rank, self.team.number)
        train = self.train  # a loader that held this object would keep its workers from ending
        self.batches = train.batches(
            schedule.points,
            shuffle=True,
            seed=schedule.seed,
            share=self.share,
            loader=lambda order: Feed(train, order, schedule.workers, schedule.device),
            chances=train.chances(self.task.weights),
        )
        average = get_ema_multi_avg_fn(schedule.average)
        self.average: AveragedModel | None = None
        if schedule.average:
            self.average = AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)
        # a mean IoU over fewer classes says little about the model
        self.by_metric = self.task.kept_by_metric and not self.task.unseen(
            self.train.labels(), self.val.labels()
        )
        if self.team.number > 1:
            sync_batch_norms(self.model)

    # --- states on the disk

    def save(self, path: Path, run: str) -> None:
        """Everything that the next step depends on, and the key of the run."""
        moments: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            state = self.optimizer.state.get(parameter, {})
            moments |= {f"{key}.{name}": value for key, value in state.items()}
        if self.average is None:
            average = {}
        else:
            average = self.average.state_dict()
        parts = prefixed(
            model=self.model.state_dict(), best=self.best, optimizer=moments, average=average
        )
        metadata = {
            "run": run,
            "history": self.history,
            "sums": self.sums,
            "batches": self.batches.state_dict(),
        }
        save_state(path, parts, metadata)

    def load(self, tensors: dict[str, Tensor], metadata: dict[str, Any], path: Path) -> None:
        """Go on from a state."""
        fill(self.model, part(tensors, "model"), path)
        self.best = part(tensors, "best")
        moments = part(tensors, "optimizer")
        if self.average is not None:
            fill(self.average, part(tensors, "average"), path)
        for name, parameter in self.model.named_parameters():
            state = {
                key: moments[f"{key}.{name}"]
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{key}.{name}" in moments
            }
            if state:
                device = parameter.device
                self.optimizer.state[parameter] = {
                    key: value.to(device) for key, value in state.items()
                }
        self.history = metadata["history"]
        self.sums = metadata["sums"]
        self.batches.load_state_dict(metadata["batches"])

    # --- the loop

    def run(self, folder: Path | None, tell: Tell, key: str = "") -> None:
        """Train to the end, and load the best parameters; ``folder`` gets states and log."""
        self.team.agree(key, self.model, self.batches.state_dict())
        _write_log(folder, self.history)  # an end may have come between a state and its line
        with self.team.signals.steps():
            self._epochs(folder, tell, key)
        if len(self.history) < self.schedule.epochs:
            tell(Progress("begin", 1.0, self._why()))
        self.model.load_state_dict(self.best)

    def _epochs(self, folder: Path | None, tell: Tell, key: str) -> None:
        """All steps, with states after some of them and after each epoch."""
        saved = time.monotonic()
        schedule = self.schedule
        while not schedule.ended(self.history):
            epoch = self.batches.epoch
            plan = self.batches.plan()
            num_batches = len(plan)
            for batch in self.batches:
                position = self.batches.position
                share = 1 / num_batches / schedule.epochs
                before = epoch / schedule.epochs + (position - 1) * share
                shapes = len(plan[position - 1])
                with fitting(schedule, f"in epoch {epoch + 1}, batch {position} of {num_batches}"):
                    loss = self._step(batch, epoch, position, before, shapes)
                self.unread.append((loss, shapes))
                tell(Progress(self.phase, before + share))
                must_end = self.team.must_end(position % READ == 0 or position == num_batches)
                if must_end and position < num_batches:
                    self._end(folder, key, epoch, position)
                is_due = time.monotonic() - saved > self.schedule.seconds
                if len(self.unread) == READ:
                    self._read(epoch)
                if folder is not None and is_due and position < num_batches:
                    self._read(epoch)
                    self.save(folder / "checkpoint.safetensors", key)
                    saved = time.monotonic()
            line = self._end_of_epoch(epoch)
            if folder is not None:
                self.save(folder / "checkpoint.safetensors", key)
                saved = time.monotonic()
                _write_log(folder, self.history)
            tell(
                Progress(
                    self.phase,
                    (epoch + 1) / self.schedule.epochs,
                    line_in_words(line, self.task),
                    line,
                )
            )
            if self.team.must_end(True):
                raise self.team.signals.error(f"after epoch {epoch + 1}")

    def _end(self, folder: Path | None, key: str, epoch: int, position: int) -> None:
        """Save the state after a step, and end in all processes."""
        self._read(epoch)

        def save() -> None:
            if folder is not None:
                self.save(folder / "checkpoint.safetensors", key)

        self.team.first_does(save)  # the others wait: torchrun ends all when one has ended
        raise self.team.signals.error(f"in epoch {epoch + 1} after batch {position}")

    def _why(self) -> str:
        """The reason for an end before the last epoch."""
        best = max(line["epoch"] for line in self.history if line["best"])
        measure = "loss"
        if self.by_metric:
            measure = "mean IoU"
        schedule = self.schedule
        return (
            f"ends after epoch {len(self.history)} of {schedule.epochs}: epoch {best} has the best "
            f"{measure} of the validation part, and of the next {schedule.patience} none has a "
            "better one (--patience)"
        )

    def _step(self, batch: Batch, epoch: int, position: int, done: float, shapes: int) -> Tensor:
        """The mean loss of a batch, whose step is queued on the device without synchronizing."""
        schedule = self.schedule
        process = self.share[0]
        # else a batch of fewer shapes than processes, and this is a copy of one of them
        counts = process < shapes
        for module in self.model.train().modules():
            if isinstance(module, SyncedNorm):
                module.counts = counts
        for group in self.optimizer.param_groups:
            group["lr"] = schedule.rate(done)
        self.optimizer.zero_grad()
        seed = mixed(schedule.seed, epoch, position, 1 + process)
        with seeded(seed):
            x, levels, y = batch
            if x.is_cuda:
                torch.cuda.manual_seed(seed)
            if schedule.shard and self.team.number > 1:
                levels, points, answer_shard = own_points(levels, self.task.readout)
                x, y = points.scatter(x), answer_shard.scatter(y)  # type: ignore[arg-type]
            with torch.autocast(x.device.type, torch.bfloat16, enabled=schedule.amp):
                output = self.model(x, levels)
            if len(output):
                loss = self.task.loss(output.to(x.dtype), y)  # type: ignore[arg-type]
            else:  # a share without points
                loss = output.sum()
            if self.team.number == 1:
                loss.backward()
            else:
                mass = self.task.mass(y, loss) * counts  # type: ignore[arg-type]
                (loss * mass).backward()
                loss = self.team.add_up(self.model, loss, mass)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        return loss.detach()

    def _read(self, epoch: int) -> None:
        """Add up the losses of the last steps, if there are some."""
        if not self.unread:
            return
        losses = torch.stack([loss for loss, _ in self.unread]).tolist()
        for loss, (_, shapes) in zip(losses, self.unread, strict=True):
            self._finite(loss, epoch)
            self.sums = [self.sums[0] + loss * shapes, self.sums[1] + shapes]
        self.unread.clear()

    def _finite(self, loss: float, epoch: int) -> float:
        if not math.isfinite(loss):
            got = f"{self.schedule.lr} and {loss} in epoch {epoch + 1}"
            raise OptionError(f"lr must be so small that the loss stays finite, got {got}")
        return loss

    def _end_of_epoch(self, epoch: int) -> dict[str, Any]:
        self._read(epoch)
        line: dict[str, Any] = {"epoch": epoch + 1, "loss": self.sums[0] / max(1.0, self.sums[1])}
        self.sums = [0.0, 0.0]
        if self.average is None:
            model = self.model
        else:
            model = self.average.module
        if len(self.val):
            answers, loss = answers_of(model, self.task, self.val, self.schedule, loss=True)
            scores = self.task.scores(
                self.task.predictions(torch.cat(answers)), torch.cat(self.val.labels())
            )
            line |= {
                "val_loss": self._finite(loss, epoch),
                f"val_{self.task.metric}": scores[self.task.metric],
            }
            line |= {f"val_{key}": scores[key] for key in ("iou",) if key in scores}  # by class
        line["best"] = all(self._better(line, old) for old in self.history if "val_loss" in line)
        if line["best"]:
            self.best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.history.append(line)
        return line

    def _better(self, line: dict[str, Any], old: dict[str, Any]) -> bool:
        """True if an epoch is better than an earlier one: of equal scores that with less loss."""
        if self.by_metric:
            key = f"val_{self.task.metric}"
            if line[key] != old[key]:
                return bool(line[key] > old[key])
        return bool(line["val_loss"] < old["val_loss"])


@contextmanager
def fitting(schedule: Schedule, where: str) -> Iterator[None]:
    """Run a batch; lack of memory is an error with the ways to go on."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
        message = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise OptionError(
            f"points must be so few that a batch fits into the memory of {schedule.device}, got "
            f"{schedule.points:,} {where}: {message[:200]} Before the first state, give fewer "
            "--points. After it, the same command goes on from the last one once memory is free, "
            "or with another --device; for fewer --points, --resume it with --finish, and start a "
            "new run --from it"
        ) from error


@torch.no_grad()
def answers_of(
    model: nn.Module, task: Task, data: Prepared, schedule: Schedule, *, loss: bool = False
) -> tuple[list[Tensor], float]:
    """Answers for each shape on the CPU, and the mean loss.

    A shape's are (1, K) or (1,), those of its points (N, K) or (N,).
    """
    model.eval()
    answers: list[Tensor] = []
    total = 0.0
    for number, (x, levels, y, sizes) in enumerate(data.still(schedule.points, schedule.device), 1):
        with fitting(schedule, f"in batch {number} of shapes held out"):
            if schedule.shard and Processes().number > 1:
                levels, points, answer_shard = own_points(levels, task.readout)
                output = answer_shard.gather(model(points.scatter(x), levels))
            else:
                output = model(x, levels)
        if loss and y is not None:
            total += float(task.loss(output.cpu().double(), y.cpu())) * len(sizes)
        batch_answers = task.answers(output.cpu())
        if task.readout == "node":
            answers += batch_answers.split(sizes)
        else:
            answers += batch_answers.split(1)
    return answers, total / len(data)


def line_in_words(line: dict[str, Any], task: Task) -> str:
    """A line of the log in words."""
    words = f"epoch {line['epoch']}: loss {line['loss']:.3f}"
    if "val_loss" in line:
        words += (
            f", validation {line['val_loss']:.3f}, {task.metric} {line[f'val_{task.metric}']:.3f}"
        )
    return words


def _write_log(folder: Path | None, history: list[dict[str, Any]]) -> None:
    """Write the log as lines of JSON, and as a table."""
    if folder is None:
        return
    save_page(folder / "log.jsonl", "".join(f"{written(line)}\n" for line in history))
    rows = []
    for line in history:
        row = {name: value for name, value in line.items() if name != "val_iou"}
        rows.append(
            row | {f"IoU of {name}": value for name, value in line.get("val_iou", {}).items()}
        )
    if rows:
        columns = list(rows[0])
    else:
        columns = []
    save_page(
        folder / "metrics.csv",
        comma_separated([columns, *([row[name] for name in columns] for row in rows)]),
    )

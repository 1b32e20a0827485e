"""The state of a patched model: the graph of each attention module, and its run on the tokens of a call."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock, local
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from ..arguments import whole
from ..errors import GraphError, OptionError
from ..graph import AttentionGraph, Pattern, PerHead
from .frame import Frame, Piece, all_tokens, of_cross
from .given import OWN, Given, sized
from .masks import KEPT, Ticket, outside_call
from .modules import Place, own_code, stacks
from .own import own_graphs
from .rows import Graph, Job, check_written, full_rows, job_of

_KEPT = 32  # cached jobs of a patch, with their plans


@dataclass(frozen=True, eq=False)
class Slot:
    """The graph of a patched module; ``given`` is ``None`` if it stays as it was."""

    place: Place
    given: Given | None
    patch: "Patch"
    inputs: tuple[str, ...] = ()
    """The inputs of the model that a function of the batch takes."""
    writes: bool = True
    """True if its tokens may be written one by one."""

    def __deepcopy__(self, memo: Any) -> "Slot":
        return self


@dataclass(frozen=True, eq=False)
class Call:
    """A call of the model, or a direct call of a model in it, as ``generate`` calls encoders."""

    inputs: dict[str, Any]
    """Inputs of functions that return graphs."""
    graphs: dict[int, Any] = field(default_factory=dict)
    """Graphs that the functions returned."""
    weights: bool = False
    """True if the caller requests attention weights."""
    tickets: list[Ticket] = field(default_factory=list)
    """Tickets of the masks of this call."""


class _Running(local):
    """The state of a thread: several threads may call one model."""

    def __init__(self) -> None:
        self.part: nn.Module | None = None  # the outermost model in a call
        self.call: Call | None = None
        self.length: int | None = None  # final number of tokens, while generate runs
        self.decoder: Frame | None = None
        self.ran: dict[Place, list[Graph]] = {}  # graphs of the layers in the last call


class Patch:
    """A model on graphs, made by :func:`patch`, with hooks on the model's calls.

    Args:
        model: The model; ``inputs``, the arguments of its forward.
    """

    def __init__(self, model: nn.Module, inputs: tuple[str, ...] = ()) -> None:
        self.model, self.inputs = model, inputs
        self.slots: dict[Place, Slot] = {}
        self.originals: dict[str, str | None] = {}  # name in configurations now -> name before
        self.running = _Running()
        self.last: dict[Place, list[Graph]] = {}  # graphs of its layers
        self.tickets: deque[Ticket] = deque(maxlen=KEPT)
        self.places = WeakValueDictionary[int, Ticket]()  # by the address of a live mask
        self._jobs: OrderedDict[Any, tuple[Job, list[Graph]]] = OrderedDict()
        self._lock = Lock()

    def layers(self, length: int | None = None, stack: str | None = None) -> list[Graph]:
        """The graph of each layer, to be analysed: ``ga.leaks(patch.layers(64))``.

        Args:
            length: Number of tokens of a text on which the model runs; by default the graphs of its last call, those of
                the first example of the batch.
            stack: The role or name of a stack, if the model has several.

        Raises:
            OptionError: If the model has not run yet, or has several stacks.
        """
        if length is not None:
            tokens = torch.zeros(
                1, whole(length, "length", 1), dtype=torch.int64, device=next(self.model.parameters()).device
            )
            both = {"decoder_input_ids": tokens} if getattr(self.model.config, "is_encoder_decoder", False) else {}
            with torch.no_grad():
                self.model(input_ids=tokens, **both)
        last = self.last if length is None else self.running.ran
        chosen = [place for place in self.slots if place in last and (stack is None or place.answers(stack))]
        if not chosen:
            raise OptionError(
                f"no layer{'' if stack is None else f' of {stack}'} has run yet: call the model, or pass length=..."
            )
        if len(stacks(chosen)) > 1:
            raise OptionError(f"stack must be one of {', '.join(stacks(last))}: these are different nodes")
        return [last[place][0] for place in chosen]

    # --- queries of attention

    @property
    def reads_batch(self) -> bool:
        """True if some graph is a function of the batch, so that each mask must carry its call."""
        return any(slot.inputs for slot in self.slots.values())

    @property
    def has_own_layers(self) -> bool:
        """True if some layer keeps the model's connectivity, which masks must then hold."""
        return any(slot.given is None or slot.given == OWN for slot in self.slots.values())

    def implementation(self, config: Any) -> str:
        """The name in a configuration before the patch."""
        return self.originals.get(getattr(config, "_attn_implementation", "")) or "sdpa"

    def wants_weights(self, options: dict[str, Any], ticket: Ticket | None) -> bool:
        """True if the call asks for weights."""
        call = self.call_of(ticket)
        return bool(options.get("output_attentions") or (call and call.weights))

    def call_of(self, ticket: Ticket | None) -> Call | None:
        """The call in which a layer runs: that of its mask, also under checkpointing."""
        return (ticket and ticket.call) or self.running.call

    def frame(self, slot: Slot, ticket: Ticket | None, T: int, S: int) -> Frame:
        """The sequences of a call; those of a decoder are kept for its cross-attention, which does not receive them."""
        crosses = slot.place.role == "cross"
        frame = all_tokens(T, S, crosses=crosses) if ticket is None else ticket.frame(crosses=crosses)
        if slot.place.role == "decoder":
            self.running.decoder = frame
        return of_cross(self.running.decoder, frame) if crosses else frame

    def job(
        self, slot: Slot, ticket: Ticket | None, mask: Tensor | None, query: Tensor, key: Tensor, *, is_causal: bool
    ) -> Job:
        """The run of a module on the tokens of this call."""
        B, T, S, device = query.shape[0], query.shape[2], key.shape[2], query.device
        frame = self.frame(slot, ticket, T, S)
        if slot.given == OWN:
            graphs: list[Any] = own_graphs(mask, ticket, T, S, is_causal=is_causal)
            self._ran(slot, graphs)
            return full_rows(frame, B, graphs, device)
        length = self.running.length if is_causal and slot.place.role != "encoder" else None
        call = self.call_of(ticket) if slot.inputs else None
        remember = frame.remember if slot.inputs else self._remember
        key_of = (id(slot.given), frame.key, B, length, device, call)
        job, graphs = remember(key_of, lambda: self._job(slot, frame, call, length, B, device))
        self._ran(slot, graphs)
        return job

    def _ran(self, slot: Slot, graphs: list[Graph]) -> None:
        ran = self.last if self.running.call is None else self.running.ran
        ran[slot.place] = graphs

    def _job(
        self, slot: Slot, frame: Frame, call: Call | None, length: int | None, batch: int, device: torch.device
    ) -> tuple[Job, list[Graph]]:
        if slot.inputs:
            frame, graphs = self._of_batch(slot, frame, call, batch)
            return job_of(graphs, frame, batch, device), graphs
        sizes: list[tuple[int, int | None]] = [(length or piece.length, None) for piece in frame.pieces]
        if slot.place.role == "cross":
            sizes = [(piece.length, max(piece.targets.end, self.running.length or 0)) for piece in frame.pieces]
        made = {size: sized(slot.given, *size) for size in dict.fromkeys(sizes)}
        graphs = [made[size] for size in sizes]
        for graph, piece in zip(graphs, frame.pieces, strict=True):
            if length is None and slot.place.role != "cross" and piece.targets.node:
                check_written(graph, piece)
        return job_of(graphs, frame, batch, device), graphs

    def _of_batch(self, slot: Slot, frame: Frame, call: Call | None, batch: int) -> tuple[Frame, list[Graph]]:
        """The graphs that a function of the batch returns; their nodes are positions of a row, padding included."""
        if call is None:
            raise outside_call()
        missing = [name for name in slot.inputs if name not in call.inputs]
        if missing:
            raise OptionError(f"the graph is a function of {', '.join(slot.inputs)}; pass {', '.join(missing)} by name")
        if any(piece.targets.node > 0 for piece in frame.pieces) and slot.place.role != "cross":
            raise GraphError("a function of the batch gets only new tokens with a cache; pass use_cache=False")
        function: Any = slot.given
        if id(function) not in call.graphs:
            call.graphs[id(function)] = function(**{name: call.inputs[name] for name in slot.inputs})
        graphs = call.graphs[id(function)]
        each = [graphs] * batch if isinstance(graphs, AttentionGraph | PerHead | Pattern) else list(graphs)
        if len(each) != batch:
            raise GraphError(f"the function must return a graph, or one for each of {batch} examples; got {len(each)}")
        pieces = frame.pieces if not frame.alike else [frame.pieces[0]._replace(row=row) for row in range(batch)]
        if frame.alike and all(graph is each[0] for graph in each):
            pieces = pieces[:1]
        size = (frame.sources, frame.targets if slot.place.role == "cross" else None)
        moved = [_by_place(piece, frame.sources) for piece in pieces]
        alike = frame.alike and len(moved) == 1
        return replace(frame, pieces=tuple(moved), alike=alike), [sized(each[piece.row], *size) for piece in moved]

    def _remember(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            made = self._jobs.pop(key, None)
        made = make() if made is None else made
        with self._lock:
            self._jobs[key] = made
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        return made

    def begin(
        self,
        part: nn.Module,
        args: tuple[Any, ...],
        options: dict[str, Any],
        *,
        names: tuple[str, ...],
        prefix: str,
        named: bool,
    ) -> None:
        """Hook before a call of the model, or of one in it: keep the inputs of functions that return graphs.

        Raises:
            OptionError: If its configuration, which ``named`` the patch, now names another attention.
        """
        config = getattr(part, "config", None)
        if named and (other := getattr(config, "_attn_implementation", None)) not in self.originals:
            raise OptionError(
                f"the patched model's attention was set to {other!r}, which ignores the graph; call ga.unpatch(model), "
                "or patch it again"
            )
        here = self.running
        if here.part is not None and part is not here.part and part is not self.model:
            return
        given = {prefix + name: value for name, value in (dict(zip(names, args, strict=False)) | options).items()}
        wanted = {name for slot in self.slots.values() for name in slot.inputs}
        wants = given.get(f"{prefix}output_attentions")
        wants = getattr(config, "output_attentions", False) if wants is None else wants
        inputs = {name: given[name] for name in wanted if name in given}
        here.part, here.call, here.decoder, here.ran = part, Call(inputs, weights=bool(wants)), None, {}

    def end(self, part: nn.Module, *_: Any) -> None:
        """Hook after a call, also after an error: forget its inputs."""
        if part is self.running.part:
            self.last = self.last | self.running.ran
            self.forget()

    def forget(self) -> None:
        """Forget the calls of this thread."""
        self.running.part = self.running.call = None

    def __deepcopy__(self, memo: Any) -> "Patch":
        return self

    def __reduce__(self) -> Any:
        raise OptionError(
            "a patched model cannot be pickled (torch.save, other processes), only its weights and graphs; save it by "
            "model.save_pretrained(path) and load it by ga.hf.from_pretrained(path), or call ga.unpatch(model) first"
        )

    def __repr__(self) -> str:
        lines: dict[str, list[str]] = {}
        for place, slot in self.slots.items():
            lines.setdefault(place.stack, []).append("as it was" if slot.given is None else _shown(slot.given))
        parts = [f"{stack} x {len(names)} on {', '.join(dict.fromkeys(names))}" for stack, names in lines.items()]
        parts += [f"{name} as it was, in its own code" for name in own_code(self.model)]
        return f"Patch({type(self.model).__name__}: {'; '.join(parts)})"


def _by_place(piece: Piece, length: int) -> Piece:
    """The piece with its positions as nodes, if its tokens are contiguous."""
    if not piece.is_solid:
        raise GraphError("a function of the batch needs contiguous tokens, but some between others are masked")
    targets, sources = piece.targets, piece.sources
    first, source = targets.places.start, sources.places.start  # type: ignore[union-attr]
    return piece._replace(targets=targets._replace(node=first), sources=sources._replace(node=source), length=length)


def _shown(given: Given) -> str:
    if given == OWN:
        return "its own masks"
    return given.name if isinstance(given, AttentionGraph | Pattern) else getattr(given, "__name__", repr(given))

"""The state of a patched model: the graph of each attention module, and its run on the tokens of a
call.
"""

import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock, local
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import torch
from torch import Tensor, nn

from ..arguments import whole
from ..errors import GraphError, OptionError
from ..graph.modes import cached_property, without_modes
from .batch import graphs_of_batch
from .causality import warn_of_later_tokens
from .graph_option import OWN_MASKS, GraphOption, is_graph, sized
from .mixing import find_mixers, first_apart, listed, restart
from .modules import Place, is_written, mixers, own_code, stacks
from .own import own_graphs
from .ticket import MOST_TICKETS, Generation, ModelCall, Ticket, outside_call
from .tokens.frame import Frame, all_tokens, of_cross
from .tokens.prepared import follow_beams
from .tokens.rows import Graph, Job, check_written, full_rows, job_of
from .tokens.sequences import TokenInputs
from .tokens.virtual import behind
from .tokens.written import Written

_MOST_JOBS = 32  # cached jobs of a patch, with their plans


@dataclass(frozen=True, eq=False)
class Slot:
    """The graph of a patched module; ``graph`` is ``None`` if it stays as it was."""

    place: Place
    graph: GraphOption | None
    patch: "Patch"
    inputs: tuple[str, ...] = ()
    """The inputs of the model that a function of the batch takes."""
    is_causal: bool = True
    """True if its tokens may be written one by one."""

    @property
    def is_open(self) -> bool:
        """True if the size of its graph is left open, so that each sequence of a row has one."""
        if self.graph is None or self.inputs:
            return False
        return not (isinstance(self.graph, str) or getattr(self.graph, "_is_fixed", False))

    def __deepcopy__(self, memo: Any) -> "Slot":
        return self


class _Running(local):
    """The state of a thread: several threads may call one model."""

    def __init__(self) -> None:
        self.part: nn.Module | None = None  # the outermost model in a call
        self.call: ModelCall | None = None
        self.tokens: list[
            tuple[nn.Module, TokenInputs]
        ] = []  # of the models in a call, outermost first
        self.generation = Generation()
        self.decoder: Frame | None = None
        self.ran: dict[Place, list[Graph]] = {}  # graphs of the layers in the last call
        self.is_cut = False  # attention is cut off, in a probe
        self.has_restarted = False  # some module, at each sequence of a row
        self.again: tuple[ModelCall | None, TokenInputs] | None = None  # of a backward pass


class Patch:
    """A model on graphs, made by :func:`patch`, with hooks on the model's calls.

    Args:
        model: The model; ``inputs``, the arguments of its forward.
    """

    def __init__(self, model: nn.Module, inputs: tuple[str, ...] = ()) -> None:
        self.model = model
        self.inputs = inputs
        self.slots: dict[Place, Slot] = {}
        self.originals: dict[str, str | None] = {}  # name in configurations now -> name before
        self.running = _Running()
        self.last: dict[Place, list[Graph]] = {}  # graphs of its layers
        self.tickets: deque[Ticket] = deque(maxlen=MOST_TICKETS)
        self.places = WeakValueDictionary[int, Ticket]()  # by the address of a live mask
        self.written = WeakKeyDictionary[Any, dict[Any, Written]]()  # by cache
        self.starts = WeakKeyDictionary[Any, set[int]]()  # first positions of rows, by cache
        self.packed = WeakSet[Any]()  # caches of rows of several sequences, without a state
        self.names_layers = False  # graphs were given by the names of layers
        self._mixers: dict[str, nn.Module] | None = None
        self._jobs: OrderedDict[Any, tuple[Job, list[Graph]]] = OrderedDict()
        self._lock = Lock()

    def layers(self, length: int | None = None, stack: str | None = None) -> list[Graph]:
        """The graph of each layer, to be analysed: ``ga.leaks(patch.layers(64))``.

        Args:
            length: Number of tokens of a text on which the model runs; by default the graphs of its
                last call, those of the first example of the batch.
            stack: The role or name of a stack, if the model has several.

        Raises:
            OptionError: If the model has not run yet, or has several stacks.
        """
        if length is not None:
            tokens = torch.zeros(
                1,
                whole(length, "length", 1),
                dtype=torch.int64,
                device=next(self.model.parameters()).device,
            )
            if getattr(self.model.config, "is_encoder_decoder", False):
                decoder_inputs = {"decoder_input_ids": tokens}
            else:
                decoder_inputs = {}
            with torch.no_grad():
                self.model(input_ids=tokens, **decoder_inputs)
        if length is None:
            last = self.last
        else:
            last = self.running.ran
        chosen = [
            place
            for place in self.slots
            if place in last and (stack is None or place.answers(stack))
        ]
        if not chosen:
            raise OptionError(
                f"no layer{'' if stack is None else f' of {stack}'} has run yet: call the model, "
                "or pass length=..."
            )
        if len(stacks(chosen)) > 1:
            raise OptionError(
                f"stack must be one of {', '.join(stacks(last))}: these are different nodes"
            )
        if self.mixers:
            warnings.warn(
                f"these graphs are of attention alone, no statement about the model: "
                f"{listed(self.mixers)} mix tokens, too",
                stacklevel=2,
            )
        return [last[place][0] for place in chosen]

    # --- queries of attention

    @property
    def may_mix(self) -> bool:
        """False if it is known that no module mixes tokens without attention."""
        return self._mixers != {}

    @property
    def mixers(self) -> dict[str, nn.Module]:
        """Modules that mix tokens without attention, by name; from now on they restart at each
        sequence of a row.
        """
        if self._mixers is None:
            self._mixers = find_mixers(self)
            for module in self._mixers.values():
                module.forward = partial(restart, self, module.forward)
        return self._mixers

    @property
    def reads_batch(self) -> bool:
        """True if some graph is a function of the batch, so that each mask must carry its call."""
        return bool(self.batch_inputs)

    @cached_property
    def batch_inputs(self) -> set[str]:
        """The inputs of the model that functions of the batch take."""
        return {name for slot in self.slots.values() for name in slot.inputs}

    @property
    def splits_rows(self) -> bool:
        """True if some graph is one for each sequence of a row."""
        return any(slot.is_open for slot in self.slots.values())

    @property
    def has_own_layers(self) -> bool:
        """True if some layer keeps the model's connectivity, which masks must then hold."""
        return any(slot.graph is None or slot.graph == OWN_MASKS for slot in self.slots.values())

    @cached_property
    def computes_with_masks(self) -> bool:
        """True if some layer takes its mask apart, as those with an indexer, and needs one."""
        modules = dict(self.model.named_modules())
        kinds: set[Any] = {type(modules[place.name]) for place in self.slots}
        return any(is_written(kind, "attention_mask[") for kind in kinds)

    @cached_property
    def slot_of_masks(self) -> Slot | None:
        """The first slot if masks can hold its graph, since all layers have that one."""
        slots = list(self.slots.values())
        if any(slot.graph is not slots[0].graph for slot in slots) or self.has_own_layers:
            return None
        return slots[0]

    def implementation(self, config: Any) -> str:
        """The name in a configuration before the patch."""
        return self.originals.get(getattr(config, "_attn_implementation", "")) or "sdpa"

    def wants_weights(self, options: dict[str, Any], ticket: Ticket | None) -> bool:
        """True if the call asks for weights."""
        call = self.call_of(ticket)
        return bool(options.get("output_attentions") or (call and call.weights))

    def call_of(self, ticket: Ticket | None) -> ModelCall | None:
        """The call in which a layer runs: that of its mask, also under checkpointing."""
        return (ticket and ticket.call) or self.running.call

    def tokens_of(self, ticket: Ticket | None) -> TokenInputs:
        """The inputs that assign tokens to sequences: those of the mask, or of the model that
        runs.
        """
        if ticket is not None and ticket.tokens is not None:
            return ticket.tokens
        if self.running.tokens:
            return self.running.tokens[-1][1]
        return TokenInputs()

    def frame(self, slot: Slot, ticket: Ticket | None, T: int, S: int) -> Frame:
        """The rows of a call; those of a decoder are kept for its cross-attention, which does not
        receive them.
        """
        crosses = slot.place.role == "cross"
        if ticket is None:
            frame = all_tokens(T, S, crosses=crosses)
        elif ticket.is_given:
            frame = all_tokens(T, S, crosses=crosses, num_cached=ticket.held)
        else:
            frame = ticket.frame(crosses=crosses)
        if slot.place.role == "decoder":
            self.running.decoder = frame
        if crosses:
            return of_cross(self.running.decoder, frame)
        return frame

    def virtual_of(self, slot: Slot, ticket: Ticket | None) -> tuple[int, int]:
        """Numbers of virtual tokens among the targets and the sources of a module."""
        call = self.call_of(ticket)
        if call is None:
            return 0, 0
        if slot.place.role == "cross":
            return call.virtual.get("decoder", 0), call.virtual.get("encoder", 0)
        number = call.virtual.get(slot.place.role, 0)
        return number, number

    def job(
        self,
        slot: Slot,
        ticket: Ticket | None,
        mask: Tensor | None,
        size: tuple[int, int, int],
        device: torch.device,
        *,
        is_causal: bool,
    ) -> Job:
        """The run of a module on the B rows of T targets and S sources of this call."""
        B, T, S = size
        crosses = slot.place.role == "cross"
        frame = self.frame(slot, ticket or self._beneath(mask, T, S), T, S)
        if slot.graph == OWN_MASKS:
            if ticket is not None and not ticket.is_given and ticket.request["kv_length"] == 1 < S:
                # a mask of one token is of all keys, as MiniMax asks for one beside a cache
                mask, ticket, frame = ticket.dense(), None, all_tokens(T, S, crosses=crosses)
            # eager attention reads all without a mask, others may be causal by themselves
            is_eager = set(self.originals.values()) == {"eager"}
            graphs: list[Any] = own_graphs(mask, ticket, T, S, is_causal=is_causal and not is_eager)
            self._ran(slot, graphs)
            return full_rows(frame, B, graphs, device)
        if not crosses:
            self._check_keys(slot, ticket, T, S)
        length = None
        if is_causal and slot.place.role != "encoder":
            length = self.running.generation.length
        virtual = self.virtual_of(slot, ticket)
        tokens = self.tokens_of(ticket)
        if slot.is_open and not crosses:
            frame = tokens.split(frame, B, virtual[1])
        elif not slot.inputs and not crosses and length is None:
            _check_larger(slot.graph, frame, tokens, B)
        call = None
        remember = self._remember
        if slot.inputs:
            call = self.call_of(ticket)
            remember = frame.remember
        key_of = (id(slot.graph), frame.key, B, length, device, call, virtual)
        job, graphs = remember(
            key_of, lambda: self._job(slot, frame, call, length, virtual, B, device)
        )
        self._ran(slot, graphs)
        return job

    def _beneath(self, mask: Tensor | None, T: int, S: int) -> Ticket | None:
        """The ticket of the mask from which a layer computed its own, as those of Doge do."""
        call = self.running.call
        if mask is None or call is None:
            return None
        for ticket in call.tickets:
            if ticket.view is not None and ticket.view.shape[-2:] == (T, S):
                return ticket
        return None

    def _check_keys(self, slot: Slot, ticket: Ticket | None, T: int, S: int) -> None:
        """Refuse keys that are not the tokens for which transformers was asked for a mask."""
        sizes: set[tuple[int, int]] = set()
        here = self.running
        if ticket is not None and not ticket.is_given:
            sizes = {(ticket.request["q_length"], ticket.request["kv_length"])}
        elif ticket is None and here.call is not None and here.tokens:
            sizes = here.call.sizes[id(here.tokens[-1][0])]
        if sizes and (T, S) not in sizes:
            tokens = max(size for _, size in sizes)
            raise OptionError(
                f"{slot.place.name} reads {S} keys where its mask has {tokens} tokens, such as "
                'compressed ones; its graph is of tokens: give it "model", its own masks, or leave '
                "it out; if these are tokens in a cache, pass use_cache=False"
            )

    def _ran(self, slot: Slot, graphs: list[Graph]) -> None:
        if self.running.call is None:
            ran = self.last
        else:
            ran = self.running.ran
        ran[slot.place] = graphs

    def _job(
        self,
        slot: Slot,
        frame: Frame,
        call: ModelCall | None,
        length: int | None,
        virtual: tuple[int, int],
        batch: int,
        device: torch.device,
    ) -> tuple[Job, list[Graph]]:
        crosses = slot.place.role == "cross"
        if slot.inputs:
            if call is None:
                raise outside_call()
            generation = self.running.generation
            frame, graphs = graphs_of_batch(slot, frame, call, virtual, batch, generation)
        else:
            sizes: list[tuple[int, int | None]] = []
            for piece in frame.pieces:
                if crosses:
                    targets = max(
                        piece.targets.end - virtual[0], self.running.generation.length or 0
                    )
                    sizes.append((piece.length - virtual[1], targets))
                else:
                    sizes.append((length or piece.length - virtual[1], None))
            sized_graphs = {size: sized(slot.graph, *size) for size in dict.fromkeys(sizes)}
            graphs = [
                behind(sized_graphs[size], *virtual, is_causal=slot.is_causal) for size in sizes
            ]
        if not crosses and not self.names_layers:
            for graph in dict.fromkeys(graphs):
                token = first_apart(graph)
                if token is not None and self.mixers:
                    raise OptionError(
                        f"{listed(self.mixers)} mix tokens along the row, in their own code, also "
                        f"token {token - 1} into token {token}, which {graph!r} keeps apart; give "
                        "each sequence a row of its own, or a pattern with position_ids that "
                        "return to 0 where one starts, or name the layers that the graph is for, "
                        "where the others may mix: {'self_attn': graph}"
                    )
        if length is None and not crosses and not slot.inputs:
            for graph, piece in zip(graphs, frame.pieces, strict=True):
                if piece.targets.node > virtual[1]:
                    check_written(graph, piece)
        writes = slot.is_causal and slot.place.role in ("", "decoder")
        if writes and length is None and not is_graph(slot.graph):
            warn_of_later_tokens(slot, graphs)
        return job_of(graphs, frame, batch, device), graphs

    def _remember(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            result = self._jobs.pop(key, None)
        if result is None:
            result = without_modes(make)
        with self._lock:
            self._jobs[key] = result
            while len(self._jobs) > _MOST_JOBS:
                self._jobs.popitem(last=False)
        return result

    def written_in(self, cache: Any) -> dict[Any, Written] | None:
        """The sources of the tokens in a cache, to be updated by each step of ``generate``."""
        if cache is None:
            return None
        written = self.written.setdefault(cache, {})
        if all(cache is not followed for followed in self.running.generation.caches):
            follow_beams(cache, written)
            self.running.generation.caches.append(cache)
        return written

    def forget(self) -> None:
        """Forget the calls of this thread."""
        self.running.part = None
        self.running.call = None
        self.running.has_restarted = False
        self.running.tokens = []

    def __deepcopy__(self, memo: Any) -> "Patch":
        return self

    def __reduce__(self) -> Any:
        raise OptionError(
            "a patched model cannot be pickled (torch.save, other processes), only its weights "
            "and graphs; save it by "
            "model.save_pretrained(path) and load it by ga.hf.from_pretrained(path), or call "
            "ga.unpatch(model) first"
        )

    def __repr__(self) -> str:
        lines: dict[str, list[str]] = {}
        for place, slot in self.slots.items():
            lines.setdefault(place.stack, []).append(
                "as it was" if slot.graph is None else _shown(slot.graph)
            )
        parts = [
            f"{stack} x {len(names)} on {', '.join(dict.fromkeys(names))}"
            for stack, names in lines.items()
        ]
        parts += [f"{name} as it was, in its own code" for name in own_code(self.model)]
        if self._mixers is None:
            verb = "may mix"
            others = mixers(self.model)
        else:
            verb = "mix"
            others = self._mixers
        if others:
            parts.append(f"{listed(others)} {verb} tokens, in their own code")
        return f"Patch({type(self.model).__name__}: {'; '.join(parts)})"


def _check_larger(graph: Any, frame: Frame, tokens: TokenInputs, batch: int) -> None:
    """Refuse a graph that is larger than rows of several sequences: it is of none of them."""
    larger = graph.num_sources > frame.sources and not any(
        piece.targets.node for piece in frame.pieces
    )
    if larger and tokens.has_restart(frame, batch):
        raise GraphError(
            f"{graph!r} is larger than the row of {frame.sources} tokens, in which position_ids "
            "start several "
            "sequences; pass a pattern, made with ... for its size, to run each by itself, or the "
            "graph of the row"
        )


def _shown(graph: GraphOption) -> str:
    if graph == OWN_MASKS:
        return "its own masks"
    if is_graph(graph):
        return graph.name
    return getattr(graph, "__name__", repr(graph))

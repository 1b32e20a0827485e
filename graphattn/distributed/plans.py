"""Plans of exchange: the rows that each moves, the choice among them, and the report of both."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import dtype as checked_dtype
from ..arguments import one_of, width
from ..errors import OptionError
from ..printed import Printed

PLANS = ("halo", "heads", "queries")
# bytes of queries and outputs against those of rows: three messages, and outputs equal to rounding
# alone
_MERGED = 2.0


@dataclass(frozen=True)
class LayerWidths:
    """The width of a layer: what a row of keys and values takes.

    Args:
        heads: H, or None if it is not known; the plan ``heads`` needs it.
        kv_heads: H_kv, the same by default.
        head_dim: D.
        dtype: Dtype of the rows.
    """

    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int = 64
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_dim"):
            if getattr(self, name) is not None:
                width(getattr(self, name), name)
        checked_dtype(self.dtype, floating=True)
        if self.kv_heads is not None and (self.heads is None or self.heads % self.kv_heads):
            raise OptionError(
                f"kv_heads must divide heads, got kv_heads={self.kv_heads} and heads={self.heads}"
            )

    @property
    def of_kv(self) -> int:
        """H_kv; 1 if no heads were given."""
        return self.kv_heads or self.heads or 1

    @property
    def group(self) -> float:
        """H / H_kv; a query, or an output, takes half as many rows of keys and values."""
        return (self.heads or self.of_kv) / self.of_kv

    @property
    def lse(self) -> float:
        """The log-sum-exp of a target, in such rows; it is float32 or wider."""
        lse_bytes = torch.promote_types(self.dtype, torch.float32).itemsize
        return self.group * lse_bytes / (2 * self.head_dim * self.dtype.itemsize)

    @property
    def bytes(self) -> int:
        """Bytes of a row of keys and values; 0 if no heads were given."""
        if self.heads:
            return 2 * self.of_kv * self.head_dim * self.dtype.itemsize
        return 0


@dataclass(frozen=True)
class Counts:
    """Targets, sources and edges that each process owns and reads, int64 (P,) each.

    Attributes:
        targets: Own targets.
        sources: Own sources.
        edges: Edges into own targets.
        remote: Sources of others that own targets read, each once.
        boundary: Own targets that read a remote source.
        asked: Queries that it sends by the plan ``queries``, one for each other process whose
            sources a target reads; ``answered``, those that it receives; ``outgoing``, edges of own
            sources. None where they are not counted.
    """

    targets: Tensor
    sources: Tensor
    edges: Tensor
    remote: Tensor
    boundary: Tensor
    asked: Tensor | None = None
    answered: Tensor | None = None
    outgoing: Tensor | None = None

    @property
    def processes(self) -> int:
        """P."""
        return self.targets.numel()

    def received(self, plan: str, rows: LayerWidths) -> Tensor:
        """Rows of keys and values that each process receives in a forward, float64 (P,)."""
        P = self.processes
        T = self.targets.double()
        S = self.sources.double()
        if plan == "halo":
            return self.remote.double()
        if plan == "queries":
            assert self.asked is not None
            assert self.answered is not None
            return (
                rows.group / 2 * (self.asked + self.answered).double()
                + rows.lse * self.asked.double()
            )
        return (S.sum() - S) / P + rows.group / 2 * (T.sum() - T + (P - 1) * T) / P


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """Rows and edges that each process owns, receives and computes, made to be printed.

    Attributes:
        plan: The plan that runs.
        partition: The partition's name, or "ids".
        counts: What each process owns and reads.
        rows: The width of a layer.
        refused: The reason against each other plan.
    """

    plan: str
    partition: str
    counts: Counts
    rows: LayerWidths
    refused: dict[str, str]

    @property
    def bytes_per_layer(self) -> Tensor:
        """Bytes that each process receives in a layer's forward, int64 (P,).

        The backward sends as many back.

        Rows of keys and values, in the dtype given; 0 if no heads were given.
        """
        return (self.counts.received(self.plan, self.rows) * self.rows.bytes).round().long()

    @property
    def edges(self) -> Tensor:
        """Edges that each process computes, int64 (P,)."""
        if self.plan == "queries":
            outgoing = self.counts.outgoing
        else:
            outgoing = None
        if outgoing is None:
            return self.counts.edges
        return outgoing

    @property
    def balance(self) -> float:
        """Edges of the process with most, over the mean: 1.0 is even."""
        if self.edges.numel():
            mean = float(self.edges.double().mean())
        else:
            mean = 0.0
        if mean:
            return int(self.edges.max()) / mean
        return 1.0

    @property
    def interior(self) -> float:
        """Share of targets that read nothing remote."""
        return 1 - int(self.counts.boundary.sum()) / max(1, int(self.counts.targets.sum()))

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        counts = {name: x.tolist() for name, x in vars(self.counts).items() if x is not None}
        summary = {
            "bytes_per_layer": self.bytes_per_layer.tolist(),
            "balance": self.balance,
            "interior": self.interior,
        }
        return {
            "plan": self.plan,
            "partition": self.partition,
            **counts,
            **summary,
            "refused": dict(self.refused),
        }

    def in_full(self) -> str:
        c = self.counts
        lines = [
            f"plan: {self.plan}, of {c.processes} processes, partition {self.partition}",
            f"  own targets {_span(c.targets)}, own sources {_span(c.sources)}, remote sources "
            f"{_span(c.remote)}",
            f"  edges {_span(self.edges)}, most over mean {self.balance:.2f}; "
            f"{self.interior:.0%} of targets read nothing remote",
        ]
        if self.plan == "queries" and c.asked is not None and c.answered is not None:
            lines.append(f"  queries sent {_span(c.asked)}, answered {_span(c.answered)}")
        if self.rows.heads:
            most = int(self.bytes_per_layer.max())
            lines.append(
                f"  a layer's forward brings a process at most {most:,} bytes, and its backward "
                "takes as many"
            )
        lines += [f"  {plan}: refused, because {reason}" for plan, reason in self.refused.items()]
        return "\n".join(lines)


def choose(
    plan: str, counts: Counts, rows: LayerWidths, against: dict[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """The plan that runs, and the reason against each other one, beside those given.

    A halo unless its largest takes more bytes than heads:
    ``h_p > (P - 1) / P * (N / P) * (1 + H / H_kv)``.

    Raises:
        OptionError: If the plan named cannot run, or none can.
    """
    one_of(plan, "plan", ("auto", *PLANS))
    if int(counts.targets.sum()) >= int(counts.sources.sum()):
        queries = "targets are not fewer than sources"
    elif counts.asked is None:
        queries = "a sample of processes lacks the queries of the others"
    else:
        queries = ""
    if rows.heads is None:
        heads = "heads is not given"
    elif rows.of_kv % counts.processes:
        heads = f"{counts.processes} processes do not divide {rows.of_kv} heads of key and value"
    else:
        heads = ""
    against = {
        "heads": heads,
        "queries": queries,
    } | (against or {})
    if plan == "queries":
        against.pop(plan)
    if plan != "auto":
        if against.get(plan):
            raise OptionError(f'plan="{plan}" cannot run: {against[plan]}; try plan="halo"')
        return plan, {
            other: against.get(other) or f"{plan} was asked for" for other in PLANS if other != plan
        }
    costs = {
        name: float(counts.received(name, rows).max()) for name in PLANS if not against.get(name)
    }
    if "queries" in costs:
        costs["queries"] *= _MERGED
    best = min(costs, key=lambda name: costs[name])
    for name in costs.keys() - {best}:
        here, there = (f"{float(counts.received(way, rows).max()):,.0f}" for way in (name, best))
        against[name] = (
            f"it brings a process {here} rows of keys and values, or as many bytes, and {best} "
            f"{there}"
        )
        if name == "queries":
            against[name] += ", and it merges outputs to rounding"
    return best, {name: against[name] for name in PLANS if name != best}


def _span(x: Tensor) -> str:
    """The least and the largest of some counts."""
    least = int(x.min())
    most = int(x.max())
    if least == most:
        return f"{most:,}"
    return f"{least:,} to {most:,}"

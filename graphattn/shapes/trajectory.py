"""Simulations: fields of a mesh, a grid or particles over time."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_finite, check_shape, integers, one_of, table
from ..errors import GraphError, ShapeError
from ..graph import AttentionGraph
from ..graph.images import checked_cell
from ..graphs.mesh.cells import cell_tables, mesh_cells

Fields = dict[str, Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Fields over time on the nodes of a mesh or of a set of particles.

    Args:
        pos: (N, d) positions of the nodes, or (T, N, d) where they move.
        fields: What is simulated, by name: (T, N, C), or (T, N) for one number a node.
        cells: Kinds and tables of cells, as :func:`graphattn.graphs.mesh_cells` takes them; none
            for particles.
        fixed: bool (N,), nodes whose fields are given (walls, inflow); or a dict of such by the name
            of a field.
        forcing: What is known ahead, by name, in the form of ``fields`` (the sun, a lid's speed).
        kinds: int64 (N,), the kind of each node (fluid, wall, inflow), as MeshGraphNets have them.
        dt: Time between two steps.
        time: (T,) the time of each step, ascending, in the place of ``dt``.
        constant: Names of forcings that stay, also after the last step; these may be (1, N, C).
        name: Of the file, for messages.
        units: Units in words, of "time", "pos" and fields by name, where they are known.
        template: Of a file of weather: its first steps with all coordinates, for xarray, by which
            :func:`graphattn.shapes.save_trajectory` writes the same.

    Attributes:
        fields, forcing: Tensors (T, N, C).
        fixed: A dict of bool (N,), one for each field.
        time: float64 (T,).

    Raises:
        ShapeError: If a tensor does not fit the others, a number is not finite (the step and the
            field are named), a name is of none, or time does not go forwards.

    Example:
        >>> pos = torch.rand(5, 2)
        >>> Trajectory(pos, {"u": torch.zeros(3, 5)}, cells=[("triangle", [[0, 1, 2], [2, 3, 4]])])
        Trajectory(3 steps of 5 nodes in 2 dimensions, u (1), 2 cells, dt 1)
    """

    pos: Tensor
    fields: Fields
    cells: Any = ()
    fixed: Any = None
    forcing: Fields = field(default_factory=dict)
    kinds: Any = None
    dt: float | None = None
    time: Tensor = None  # type: ignore[assignment]
    constant: Collection[str] = ()
    name: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    template: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "pos", table(self.pos, "pos", "positions (N, d) or (T, N, d)", ShapeError)
        )
        if self.pos.dim() not in (2, 3) or not self.pos.is_floating_point():
            raise ShapeError(
                f"{self._where()}pos must be floating point (N, d) or (T, N, d), got "
                f"{tuple(self.pos.shape)} of {self.pos.dtype}"
            )
        if not self.fields:
            raise ShapeError(f"{self._where()}fields must have at least one, got none")
        object.__setattr__(self, "fields", self._checked("fields", self.fields))
        object.__setattr__(self, "forcing", self._checked("forcing", self.forcing))
        self._check_names("constant", self.constant, "forcing")
        if self.pos.dim() == 3:
            check_shape(self.pos, f"{self._where()}pos", (self.num_steps, ...), "as the fields")
        check_finite(self.pos, f"{self._where()}pos")
        try:
            cells, _ = cell_tables(self.cells, self.num_nodes)
        except GraphError as error:  # a vertex that is not there, or an unknown kind
            raise ShapeError(f"{self._where()}{error}") from None
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "fixed", self._checked_fixed())
        if self.kinds is not None:
            object.__setattr__(self, "kinds", integers(self.kinds, "kinds", "(N,)", ShapeError))
            check_shape(self.kinds, f"{self._where()}kinds", (self.num_nodes,))
        object.__setattr__(self, "time", self._checked_time())

    @property
    def num_steps(self) -> int:
        """T."""
        return len(next(iter(self.fields.values())))

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.pos.shape[-2]

    def positions(self, step: int) -> Tensor:
        """Positions (N, d) at a step."""
        if self.pos.dim() == 3:
            return self.pos[step]
        return self.pos

    def graph(self, hops: int = 1, *, self_loops: bool = False) -> AttentionGraph:
        """The graph of the mesh's own edges: :func:`graphattn.graphs.mesh_cells`.

        Raises:
            ShapeError: If there are no cells.
        """
        if not self.cells:
            raise ShapeError(
                f"{self._where()}graph needs cells, got particles; pass "
                "graphs.radius(trajectory.positions(step), r)"
            )
        return mesh_cells(self.cells, self.num_nodes, hops, self_loops=self_loops)

    def steps(self, first: int, last: int | None = None) -> "Trajectory":
        """The steps ``first`` to ``last``, without the last, as a trajectory."""
        part = slice(first, last)
        pos = self.pos
        if pos.dim() == 3:
            pos = pos[part]
        return replace(
            self,
            pos=pos,
            fields={name: x[part] for name, x in self.fields.items()},
            forcing={name: x[part] for name, x in self.forcing.items()},
            dt=None,
            time=self.time[part],
        )

    def with_forcing(self, names: Iterable[str]) -> "Trajectory":
        """The trajectory with some of its fields as forcing, which is known ahead."""
        argument = f"{self._where()}forcing"
        moved = {
            one_of(name, argument, tuple(self.fields), ShapeError): self.fields[name]
            for name in names
        }
        if not moved:
            return self
        fields = {name: x for name, x in self.fields.items() if name not in moved}
        return replace(
            self,
            fields=fields,
            fixed={name: x for name, x in self.fixed.items() if name in fields},
            forcing={**self.forcing, **moved},
            dt=None,
        )

    def unwrapped(self, cell: Any, pbc: Any = True) -> "Trajectory":
        """Nodes that go on across the border of a cell, where those of a file jump to the other side.

        Positions that move, and a field called ``pos``, go to the image that is nearest to the last
        place.

        Args:
            cell: (d, d), the lattice vectors of the cell as rows.
            pbc: bool (d,), the axes along which it repeats; all by default.

        Example:
            >>> x = torch.tensor([0.7, 0.9, 0.1, 0.3])[:, None, None]
            >>> Trajectory(x, {"pos": x}).unwrapped([[1.0]]).pos.flatten()
            tensor([0.7000, 0.9000, 1.1000, 1.3000])
        """
        vectors = checked_cell(cell, self.pos.shape[-1], ShapeError).double()

        def on(pos: Tensor) -> Tensor:
            moves = pos.double().diff(dim=0)
            turns = (moves @ torch.linalg.inv(vectors)).round() * torch.as_tensor(pbc)
            shift = torch.cat((torch.zeros_like(moves[:1]), turns.cumsum(0))) @ vectors
            return (pos - shift).to(pos.dtype)

        pos = self.pos
        if pos.dim() == 3:
            pos = on(pos)
        fields = self.fields
        if "pos" in fields:
            fields = fields | {"pos": on(fields["pos"])}
        return replace(self, pos=pos, fields=fields, dt=None)

    def weights(self, weight: str) -> Tensor:
        """Weights (N,) of the nodes in float64, 1 in the mean, by their first positions.

        "none" for ones; "area", each node's share of the lengths, areas or volumes of its lines,
        triangles or tetrahedra, by which a sum over nodes is an integral of linear elements;
        "latitude", its cosine, for a regular grid on a sphere around the origin.
        """
        pos = self.positions(0).double()
        weights = torch.zeros_like(pos[:, 0])
        if one_of(weight, "weight", ("none", "area", "latitude")) == "none":
            return weights + 1
        if weight == "latitude":
            weights = (1 - (pos[:, -1] / pos.norm(dim=1)).square()).clamp(min=0).sqrt()
        else:
            for kind, rows in self.cells:
                if kind not in ("line", "triangle", "tetra"):
                    raise ShapeError(
                        f"{self._where()}weight='area' is for lines, triangles and tetrahedra, got "
                        f"{kind}"
                    )
                sides = pos[rows[:, 1:]] - pos[rows[:, :1]]
                size = (sides @ sides.mT).det().clamp(min=0).sqrt()
                weights.index_add_(0, rows.flatten(), size.repeat_interleave(rows.shape[1]))
        return weights / weights.mean()

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by the names of the arrays of an .npz."""
        tensors = {"pos": self.pos, "time": self.time}
        tensors |= {f"cells.{i}.{kind}": rows for i, (kind, rows) in enumerate(self.cells)}
        tensors |= {f"fixed.{name}": mask for name, mask in self.fixed.items() if mask.any()}
        tensors |= {
            f"forcing.{name}": x[:1] if name in self.constant else x
            for name, x in self.forcing.items()
        }
        tensors |= {f"fields.{name}": x for name, x in self.fields.items()}
        if self.kinds is not None:
            tensors["kinds"] = self.kinds
        return tensors

    def to(self, device: torch.device | str) -> "Trajectory":
        """The trajectory on another device."""
        kinds = self.kinds
        if kinds is not None:
            kinds = kinds.to(device)
        return replace(
            self,
            pos=self.pos.to(device),
            fields={name: x.to(device) for name, x in self.fields.items()},
            fixed={name: x.to(device) for name, x in self.fixed.items()},
            forcing={name: x.to(device) for name, x in self.forcing.items()},
            kinds=kinds,
            dt=None,
        )

    def _where(self) -> str:
        if self.name:
            return f"{self.name}: "
        return ""

    def _checked(self, argument: str, given: Mapping[str, Any]) -> Fields:
        """Tensors (T, N, C) of equal T, all finite."""
        found: Fields = {}
        steps = None
        if argument == "forcing":
            steps = self.num_steps
        for name, value in given.items():
            x = table(value, f"{argument}[{name!r}]", "numbers (T, N, C)", ShapeError)
            if x.dim() == 2:
                x = x.unsqueeze(-1)
            if x.dim() == 3 and argument == "forcing" and name in self.constant:
                if x.stride(0) and bool((x != x[:1]).any()):  # 0 of what was expanded
                    raise ShapeError(
                        f"{self._where()}forcing[{name!r}] must stay, as constant names it, got "
                        "values that change"
                    )
                x = x[:1].expand(self.num_steps, -1, -1)
            fits = x.dim() == 3 and x.shape[1] == self.num_nodes
            if not fits or steps not in (None, len(x)):
                expected = f"({steps or 'T'}, {self.num_nodes}, C)"
                raise ShapeError(
                    f"{self._where()}{argument}[{name!r}] must have shape {expected}, one row a "
                    f"step, got {tuple(x.shape)}"
                )
            if not x.is_floating_point():
                x = x.float()
            bad = torch.nonzero(~torch.isfinite(x))
            if len(bad):
                step, node, _ = bad[0].tolist()
                raise ShapeError(
                    f"{self._where()}{argument}[{name!r}] must be finite, got "
                    f"{float(x[step, node].sum())} at step {step}, node {node}"
                )
            steps = len(x)
            found[name] = x
        return found

    def _check_names(self, argument: str, names: Collection[str], of: str) -> None:
        """Refuse names of no field, or of no forcing."""
        known = getattr(self, of)
        unknown = {*names} - {*known}
        if unknown:
            raise ShapeError(
                f"{self._where()}{argument} names {sorted(unknown)}, which {of} lacks: it has "
                f"{sorted(known)}"
            )

    def _checked_fixed(self) -> Fields:
        fixed = self.fixed
        if not isinstance(fixed, Mapping):
            fixed = dict.fromkeys(self.fields, fixed)
        self._check_names("fixed", fixed, "fields")
        nothing = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.pos.device)
        found = {}
        for name in self.fields:
            mask = fixed.get(name)
            if mask is None:
                mask = nothing
            mask = torch.as_tensor(mask)
            if mask.dtype != torch.bool or mask.shape != (self.num_nodes,):
                raise ShapeError(
                    f"{self._where()}fixed must be bool ({self.num_nodes},), got "
                    f"{tuple(mask.shape)} of {mask.dtype}"
                )
            found[name] = mask
        return found

    def _checked_time(self) -> Tensor:
        if self.time is None:
            step = 1.0
            if self.dt is not None:
                step = float(self.dt)
            time = step * torch.arange(self.num_steps, dtype=torch.float64)
        else:
            time = torch.as_tensor(self.time).double()
        check_shape(time, f"{self._where()}time", (self.num_steps,))
        back = torch.nonzero(~(time.diff() > 0)).flatten()
        if len(back):
            step = int(back[0])
            raise ShapeError(
                f"{self._where()}time must go forwards, got {float(time[step]):g} at step {step} "
                f"and {float(time[step + 1]):g} at step {step + 1}"
            )
        return time

    def __repr__(self) -> str:
        names = ", ".join(f"{name} ({x.shape[-1]})" for name, x in self.fields.items())
        kind = "particles"
        if self.cells:
            kind = f"{sum(len(rows) for _, rows in self.cells):,} cells"
        steps = self.time.diff()
        every = ""
        if len(steps):
            every = f", dt {float(steps.mean()):.4g} {self.units.get('time', '')}".rstrip()
        return (
            f"Trajectory({self.num_steps} steps of {self.num_nodes:,} nodes in "
            f"{self.pos.shape[-1]} dimensions, {names}, {kind}{every})"
        )

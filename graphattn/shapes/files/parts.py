"""The parts of a shape in a file: tensors by what they belong to, in types that files have."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...io.reading import fault
from ..shape import LATTICE
from .curves.lines import ENDS
from .words import levels, narrow

# that formats of typed columns hold
NUMBERS = (
    "i4",
    "u4",
    "u1",
    "i1",
    "u2",
    "i2",
    "i8",
    "u8",
    "f4",
    "f8",
)
_COLUMNS = {
    "pos": ("x", "y", "z"),
    "normal": ("nx", "ny", "nz"),
    "color": ("red", "green", "blue"),
    "uv": ("s", "t"),
    "y": ("label",),
}
_ALL = (
    "save .npz, which holds every tensor, or pass lossy=True to leave out or round what the "
    "format cannot hold"
)


@dataclass(frozen=True, eq=False)
class Parts:
    """The tensors of a shape by the rows that they belong to."""

    path: str
    points: dict[str, np.ndarray]  # (N,) or (N, k)
    face: np.ndarray | None  # (3, F)
    faces: dict[str, np.ndarray]  # (F,) or (F, k)
    others: dict[str, np.ndarray]  # of another length, named "element_property"
    of_shape: dict[str, np.ndarray]  # of the shape itself
    lossy: bool

    @property
    def pos(self) -> np.ndarray:
        """(N, 3), the only tensor that every file has."""
        return self.points["pos"]

    def refuse(self, expected: str, got: str, fix: str = _ALL) -> None:
        """Raise, unless losses are allowed."""
        if not self.lossy:
            raise fault(self.path, expected, got, fix)

    def holds(
        self,
        *points: str,
        face: bool = False,
        faces: Collection[str] | None = (),
        of_shape: bool = False,
    ) -> None:
        """Refuse all but ``pos``, these tensors of points, and faces; ``None`` allows all, and
        ``of_shape`` those of the shape itself.
        """
        if points != ("...",):
            refused = [name for name in self.points if name not in ("pos", *points)]
        else:
            refused = []
        refused += [name for name in self.faces if faces is not None and name not in faces]
        if not of_shape:
            refused += [*self.others, *self.of_shape]
        if self.face is not None and not face:
            refused.append("face")
        if refused:
            self.refuse(
                f"a shape that {self.path[self.path.rfind('.') :]} can hold", ", ".join(refused)
            )

    def lines(self) -> np.ndarray | None:
        """Take the lines (L, 2) out of the others and of the shape, if it has some."""
        edges = self.of_shape.pop("edge_index", None)
        for group in (self.others, self.of_shape):  # a single line has one row, as the shape has
            if set(ENDS) <= set(group):
                return np.stack([group.pop(name) for name in ENDS], 1)
        if edges is None:
            return None
        back = edges[::-1]
        if not np.array_equal(edges[:, np.lexsort(edges)], back[:, np.lexsort(back)]):
            self.refuse("edge_index of lines in both directions", "some in one")
        return np.unique(np.sort(edges, axis=0), axis=1).T

    def narrow(self, most: int) -> dict[str, np.ndarray]:
        """Tensors of points with at most so many numbers for each."""
        too_wide = [name for name, values in self.points.items() if values[0].size > most]
        if too_wide:
            self.refuse(
                f"at most {most} numbers for each point",
                f"{too_wide[0]} of {self.points[too_wide[0]][0].size}",
            )
        return {name: values for name, values in self.points.items() if name not in too_wide}

    def fit(self, name: str, values: np.ndarray, types: Collection[Any]) -> np.ndarray:
        """The numbers in their own type, else in the first of ``types`` that holds them exactly."""
        dtype = values.dtype.newbyteorder("=")
        types = sorted(map(np.dtype, types), key=lambda kind: kind.kind != dtype.kind)
        with np.errstate(all="ignore"):
            kinds: Any = types
            if dtype in types:
                kinds = [dtype, *types]
            for kind in kinds:
                small = values.astype(kind)
                back = small.astype(dtype)
                if (
                    kind == dtype
                    or ((back == values) | ((back != back) & (values != values))).all()
                ):
                    return small
            self.refuse(
                f"{name} in one of {', '.join(map(str, types))}", f"{dtype} that none of them holds"
            )
            return values.astype(types[-1])

    def text(self, name: str, values: np.ndarray) -> np.ndarray:
        """Numbers that are read back from a text as they are, or a refusal."""
        if values.dtype.kind == "f" and not np.array_equal(
            narrow(values, allow_int=False), values, equal_nan=True
        ):
            self.refuse(f"{name} in float32, as numbers of a text are read", "float64")
        return values

    @staticmethod
    def digits(table: np.ndarray) -> str:
        """The format for numpy.savetxt that gives back the same bits, of one column or of all."""
        one = {"f": f"%.{17 if table.itemsize == 8 else 9}g"}.get(table.dtype.kind, "%d")
        if table.ndim > 1:
            return " ".join([one] * table.shape[1])
        return one

    def columns(
        self, group: dict[str, np.ndarray], prefix: str = "", taken: Collection[str] = ()
    ) -> dict[str, np.ndarray]:
        """Columns by names of files: x, y, z, nx, ..., red, ..., label; colours as bytes if exact.

        A tensor is refused if a column of it has a name that is ``taken``, by the format or by
        ``pos``, ``y``, ...
        """
        out: dict[str, np.ndarray] = {}
        for name in sorted(group, key=lambda name: name.removeprefix(prefix) not in _COLUMNS):
            plain = name.removeprefix(prefix)
            values = group[name]
            if any(letter.isspace() or letter in ",;#" for letter in plain):
                raise fault(
                    self.path,
                    "names without blanks, commas and semicolons",
                    f"{plain!r}",
                    "rename it",
                )
            if plain in ("color", "alpha") and values.dtype.kind == "f":
                values = levels(values)
            if prefix in ("", "face_"):
                names = _COLUMNS.get(plain, (plain,))
            else:
                names = (plain,)
            if plain in ("pos", "normal") and values.ndim == 2:
                names = names[: values.shape[1]]
            if len(names) > 1 and values.shape[1:] == (len(names),):
                new = {column_name: values[:, column] for column, column_name in enumerate(names)}
            else:
                new = {names[0] if plain == "y" else plain: values}
            twice = [
                column_name for column_name in new if column_name in out or column_name in taken
            ]
            if twice:
                self.refuse(
                    f"a name for {name} that no other column has",
                    twice[0],
                    f"rename {name}, or {_ALL}",
                )
                continue
            out |= new
        return out


def parts_of(data: Any, path: str, widths: range, lossy: bool) -> Parts:
    """The tensors of a shape by kind; ``pos`` is (N, k), k in ``widths``, the rest tensors."""
    if getattr(data, "ptr", None) is not None and getattr(data, "batch", None) is not None:
        raise fault(path, "one shape", "a batch", "batch.to_data_list(), one file for each")
    items = {name: value for name, value in data.to_dict().items() if value is not None}
    refused = [
        name
        for name, value in items.items()
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided
    ]
    pos: Any = items.get("pos")
    got = ""
    if pos is None:
        got = "none"
    elif not isinstance(pos, torch.Tensor):
        got = type(pos).__name__
    elif pos.ndim != 2 or not len(pos) or pos.shape[1] not in widths:
        got = f"{tuple(pos.shape)}"
    if got:
        raise fault(path, "pos of shape (N, 3), N > 0", got, "Data(pos=...)")
    arrays = {name: _array(items[name]) for name in items if name not in refused}
    face = arrays.pop("face", None)
    num_faces = None
    if face is not None:
        _check_face(path, face, len(pos))
        num_faces = face.shape[1]
    groups: tuple[dict[str, np.ndarray], ...] = ({}, {}, {}, {})
    for name, values in arrays.items():
        groups[_rows(name, values, len(pos), num_faces)][name] = values
    parts = Parts(path, groups[0], face, groups[1], groups[2], groups[3], lossy)
    if refused:
        parts.refuse(
            "dense tensors",
            f"{refused[0]}, a {type(items[refused[0]]).__name__}",
            "lossy=True leaves it out",
        )
    return parts


def _check_face(path: str, face: np.ndarray, num_points: int) -> None:
    """Refuse faces that are not (3, F) integers, or whose corners are no points."""
    if face.ndim != 2 or len(face) != 3 or face.dtype.kind not in "iu":
        raise fault(path, "face of shape (3, F)", face.shape, "data.face.t() if it is (F, 3)")
    if face.size == 0:
        return
    if not 0 <= face.min() <= face.max() < num_points:
        raise fault(
            path,
            f"faces of vertices 0 to {num_points - 1}",
            f"{face.min()} to {face.max()}",
            "repair face",
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor; NumPy has no bfloat16."""
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float64):
        tensor = tensor.float()
    return tensor.detach().cpu().contiguous().numpy()


def _rows(name: str, values: np.ndarray, points: int, faces: int | None) -> int:
    """0: a row for each point; 1: for each face; 2: of something else; 3: of the shape itself."""
    if values.ndim == 0 or name in ("edge_index", *LATTICE):
        return 3
    size = len(values)
    of_single_shape = name == "y" and points == 1
    if size == points and not of_single_shape:
        return 0
    if size == faces and name.startswith("face_"):
        return 1
    if size > 1 and "_" in name:
        return 2
    return 3

"""Extended XYZ: atoms in a cell, one frame or many; and crystals of CIF by ASE.

A frame is a line with the number of atoms, a line of ``key=value``, and a line for each atom, whose
columns ``Properties`` names. Keys and columns are those of ASE.
"""

import io
import json
import re
import warnings
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ...errors import LoaderError, need_extra
from ...io.reading import Blob, PathLike, fault, read, show
from .lengths import doubts_of_atoms
from .parts import Parts
from .raw import Contents, Raw, reads, writes

_TABLE = """
X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr
Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb
Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf
Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
"""
#: By atomic number; ASE's X stands for none.
SYMBOLS = tuple(_TABLE.split())
_NUMBERS = {symbol: number for number, symbol in enumerate(SYMBOLS)}
_USUAL = "species:S:1:pos:R:3"
_MOST = len(SYMBOLS)
_HEAD = re.compile(rb"\s*([1-9]\d{0,17})[ \t\r]*\n([^\n]*)\n([^\n]*)")
_PAIR = re.compile(r'([^\s="]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|\{[^}]*\}|\[[^\]]*\]|[^\s"]+))?')
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_MIXTURE = re.compile(r"[A-Za-z)]\s*\+.*[A-Za-z]")  # 0.8Nb + 0.2Zr, and not La3+
_SITE = "_atom_site_"  # of tags of CIF
_OF_SITES = {
    "label",
    "type_symbol",
    *("fract_x", "fract_y", "fract_z", "cartn_x", "cartn_y", "cartn_z"),
    "occupancy",
    *("symmetry_multiplicity", "site_symmetry_multiplicity", "wyckoff_symbol"),
}
_JSON = "_JSON "
_FLAGS = {"T": True, "True": True, "true": True, "F": False, "False": False, "false": False}
_TYPES = {"R": np.float64, "I": np.int64}
_OF_FRAMES = {"energy", "free_energy", "stress", "virial", "dipole"}
_WORDS = {"Z": "z", "numbers": "z", "positions": "pos"}


@reads(
    ".extxyz",
    contents=Contents(
        read=(
            "species or atomic numbers, `Lattice`, `pbc`, every column and key of numbers or flags"
        ),
        noted=(
            "texts, plain comments; columns without names, which are `x`; what other frames of "
            "the file have; units that look wrong"
        ),
        refused="unknown elements, other numbers of columns than `Properties` has",
    ),
)
def read_extxyz(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The atoms of a file of one frame."""
    return one_frame(read(path, max_bytes))


def one_frame(blob: Blob) -> Raw:
    """The atoms of a file of one frame."""
    blocks = frames(blob)
    if len(blocks) > 1:
        raise blob.fault(
            "one frame", f"{len(blocks)}", "graphattn.shapes.load_frames(path) reads all of them"
        )
    return blocks[0]


def is_extxyz(data: bytes) -> bool:
    """True for a number of atoms, a comment, and as many atoms: by their symbols, or by atomic
    numbers and decimal places, or in named columns.
    """
    head = _HEAD.match(data)
    if head is None:
        return False
    if re.search(rb"\b(Properties|Lattice)\s*=", head[2]):
        return True
    first = head[3].split()
    if not first or not _is_number(first[0].decode("utf-8", "replace")):
        return bool(first)
    if len(first) < 4 or not first[0].isdigit():
        return False
    size = int(head[1])
    rows = [line.split() for line in data[head.start(3) :].split(b"\n", size)[:size]]
    are_atoms = (len(row) > 3 and row[0].isdigit() and 0 < int(row[0]) < _MOST for row in rows)
    has_places = any(b"." in word for row in rows for word in row[1:4])
    return len(rows) == size and has_places and all(are_atoms)


def frames(blob: Blob) -> list[Raw]:
    """The atoms of every frame. Where some have a cell, others have one of zeros, as ASE's have."""
    try:
        lines = blob.data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise blob.fault("UTF-8 text", show(blob.data[:40]), f"save it as text: {error}") from None
    blocks = []
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        frame = _Frame(blob, lines, at)
        blocks.append(frame.raw())
        at = frame.end
    if not blocks:
        raise blob.fault("a frame: a number of atoms first", "an empty file", "export it again")
    doubts = doubts_of_atoms(blocks)
    blocks = [replace(frame, doubt=doubt) for frame, doubt in zip(blocks, doubts, strict=True)]
    if any("cell" in frame.others for frame in blocks):
        nowhere = {"cell": np.zeros((3, 3)), "pbc": np.zeros(3, bool)}
        blocks = [replace(frame, others=nowhere | frame.others) for frame in blocks]
    names = {name for frame in blocks for name in (*frame.points, *frame.others)}
    return [_noted(frame, names) for frame in blocks]


def _noted(frame: Raw, names: set[str]) -> Raw:
    """A frame with a note of what others of its file have and PyG's batches therefore lose."""
    missing = sorted(names - {*frame.points, *frame.others})
    if not missing:
        return frame
    note = f"no {', '.join(missing)}, which other frames of the file have"
    return replace(frame, notes=(*frame.notes, note))


class _Frame:
    """One frame of a file, from the line ``at`` on."""

    def __init__(self, blob: Blob, lines: list[str], at: int) -> None:
        self.blob = blob
        self.at = at
        self.notes: list[str] = []
        count = lines[at].strip()
        if not count.isdigit() or int(count) < 1:
            raise self.fault(at, "a number of atoms > 0", count)
        self.end = at + 2 + int(count)
        if self.end > len(lines):
            raise self.fault(
                at, f"{count} lines of atoms after the comment", f"{max(0, len(lines) - at - 2)}"
            )
        self.texts: list[str] = []
        self.pairs = self._pairs(lines[at + 1])
        self.rows = [line.split() for line in lines[at + 2 : self.end]]

    def fault(self, line: int, expected: str, got: str) -> LoaderError:
        return self.blob.fault(
            expected, got[:200], "write it with ASE's format extxyz", at=f"line {line + 1}"
        )

    def _pairs(self, comment: str) -> dict[str, str]:
        pairs = {}
        is_extended = re.search(r"\b(Properties|Lattice)\s*=", comment) is not None
        for key, value in _PAIR.findall(comment):
            if not value and not is_extended:  # a word of a plain comment, and no flag
                self.texts = ["words of the comment"]
                continue
            if value[:1] in ('"', "{", "["):
                value = value[1:-1]
            pairs[key] = value
        return pairs

    def raw(self) -> Raw:
        """Tensors of atoms, and ``cell``, ``pbc`` and numbers of the whole frame."""
        points = self._columns()
        others: dict[str, np.ndarray] = {}
        has_cell = "Lattice" in self.pairs
        if has_cell:
            cell = self._numbers("Lattice", self.pairs["Lattice"], 9)
            others["cell"] = cell.reshape(3, 3)
        if has_cell or "pbc" in self.pairs:
            words = self.pairs.get("pbc", "T T T").replace(",", " ").split()
            if len(words) != 3 or not set(words) <= set(_FLAGS):
                raise self.fault(self.at + 1, "pbc of three T or F", " ".join(words))
            flags = np.array([_FLAGS[word] for word in words])
            if flags.any() and not has_cell:
                raise self.fault(self.at + 1, "Lattice beside periodic axes", "none")
            others["pbc"] = flags
        for key, value in self.pairs.items():
            if key in ("Lattice", "pbc", "Properties"):
                continue
            numbers = _value(value)
            if numbers is None:
                self.texts.append(key)
            else:
                others[key] = numbers
        if self.texts:
            self.notes.append(f"left out, as texts: {', '.join(self.texts)}")
        return Raw(self.blob, points, others=others, notes=tuple(self.notes))

    def _columns(self) -> dict[str, np.ndarray]:
        """Tensors of atoms by name; texts are left out."""
        words = self.pairs.get("Properties", _USUAL).split(":")
        widths = words[2::3]
        if len(words) % 3 or not all(width.isdigit() for width in widths):
            raise self.fault(
                self.at + 1, "Properties as name:type:columns, ...", self.pairs["Properties"]
            )
        total = sum(map(int, widths))
        for number, row in enumerate(self.rows):
            short = len(row) < total
            if short or ("Properties" in self.pairs and len(row) > total):
                line = self.at + 2 + number
                raise self.fault(line, f"{total} columns", f"{len(row)}")
        points: dict[str, np.ndarray] = {}
        rest = [row[total:] for row in self.rows]
        if any(rest):
            are_numbers = all(_is_number(word) for row in rest for word in row)
            if are_numbers and len({len(row) for row in rest}) == 1:
                points["x"] = np.array(rest, np.float64)
                self.notes.append(f"columns {total + 1} and on have no names: x")
            else:
                self.texts.append(f"columns behind the {total}th")
        first = 0
        for name, kind, width in zip(words[::3], words[1::3], map(int, widths), strict=True):
            cells = [row[first : first + width] for row in self.rows]
            first += width
            if kind == "S" and name == "species":
                points["z"] = self._species(cells)
                if cells[0][0].isdigit() and "Properties" not in self.pairs:
                    self.notes.append("the first column is read as atomic numbers")
            elif kind == "S":
                self.texts.append(name)
            elif kind in ("R", "I", "L"):
                name = _WORDS.get(name, name)
                points[name] = self._table(name, kind, cells)
            else:
                raise self.fault(self.at + 1, f"type R, I, L or S of {name}", kind)
        return points

    def _species(self, cells: list[list[str]]) -> np.ndarray:
        numbers = []
        for row, (symbol, *_) in enumerate(cells):
            if symbol.isdigit() and int(symbol) < _MOST:
                numbers.append(int(symbol))
            elif symbol in _NUMBERS:
                numbers.append(_NUMBERS[symbol])
            else:
                raise self.fault(self.at + 2 + row, "the symbol of an element", symbol)
        return np.array(numbers)

    def _table(self, name: str, kind: str, cells: list[list[str]]) -> np.ndarray:
        table = np.array(cells)
        if kind == "L":
            values = np.isin(table, [word for word, flag in _FLAGS.items() if flag])
            wrong = ~np.isin(table, list(_FLAGS))
        else:
            try:
                values = table.astype(_TYPES[kind])
                wrong = np.zeros(table.shape, bool)
            except (ValueError, OverflowError):
                wrong = np.array([[not _fits(word, kind) for word in row] for row in cells])
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise self.fault(self.at + 2 + int(row), f"a number of {name}", cells[row][column])
        if table.shape[1] == 1:
            return values[:, 0]
        return values

    def _numbers(self, key: str, value: str, count: int) -> np.ndarray:
        words = value.replace(",", " ").split()
        if len(words) != count or not all(map(_is_number, words)):
            raise self.fault(self.at + 1, f"{key} of {count} numbers", value)
        return np.array(words, np.float64)


def _fits(word: str, kind: str) -> bool:
    """True for a real number, or for an integer of 64 bits."""
    if kind == "R":
        return _is_number(word)
    return bool(_INTEGER.fullmatch(word))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _value(text: str) -> np.ndarray | None:
    """A value of the comment as numbers (n,) or (3, 3), or flags; None for a text."""
    words = text.replace(",", " ").split()
    if text.startswith(_JSON):
        return _of_json(text.removeprefix(_JSON))
    if text == "":
        return np.array([True])
    if words and all(word in _FLAGS for word in words):
        return np.array([_FLAGS[word] for word in words])
    if not words or not all(map(_is_number, words)):
        return None
    values = np.array(words, np.float64)
    if all(map(_INTEGER.fullmatch, words)):
        values = np.array(words, np.int64)
    if len(values) == 9:
        return values.reshape(3, 3, order="F")
    return values


def _of_json(text: str) -> np.ndarray | None:
    """ASE's form of tables of numbers; None for anything else."""
    try:
        values = np.array(json.loads(text))
    except (ValueError, RecursionError):
        return None
    if values.dtype.kind in "bif":
        return values
    return None


@writes(".extxyz")
def write_extxyz(file: BinaryIO, parts: Parts) -> None:
    """Columns by ``Properties``; ``cell`` as ``Lattice``, numbers of the whole shape by name."""
    parts.holds("...", of_shape=True)
    points = dict(parts.points)
    numbers = points.pop("z", np.zeros(len(parts.pos), np.int64))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        parts.refuse("z as atomic numbers (N,)", f"{numbers.dtype} of shape {numbers.shape}")
        numbers = np.zeros(len(parts.pos), np.int64)
    if numbers.min() < 0 or numbers.max() >= len(SYMBOLS):
        raise fault(
            parts.path,
            f"z from 0 to {len(SYMBOLS) - 1}",
            f"{numbers.min()} to {numbers.max()}",
            "atomic numbers",
        )
    of_shape = parts.others | parts.of_shape
    for name in _OF_FRAMES & set(points):  # of one atom, or (3, 3) of three
        of_shape[name] = points.pop(name)
    properties = ["species:S:1"]
    columns = [[SYMBOLS[number] for number in numbers.tolist()]]
    pos = points.pop("pos")
    for name, values in {"pos": pos, **points}.items():
        flat = values.reshape(len(values), -1)
        kind = {"f": "R", "b": "L"}.get(values.dtype.kind, "I")
        properties.append(f"{_plain(parts, name)}:{kind}:{flat.shape[1]}")
        columns += [_words(column) for column in flat.T]
    comment = []
    cell = of_shape.pop("cell", None)
    if cell is not None:
        if cell.shape != (3, 3):
            parts.refuse("cell of shape (3, 3)", f"{cell.shape}")
        else:
            comment.append(f'Lattice="{" ".join(_words(cell.reshape(-1)))}"')
    comment.append(f"Properties={':'.join(properties)}")
    for name, values in of_shape.items():
        text = " ".join(_words(values.reshape(-1, order="F")))
        if values.ndim > 1 and values.shape != (3, 3):
            text = f"{_JSON}{json.dumps(values.tolist())}"
        comment.append(f'{_plain(parts, name)}="{text}"')
    if cell is not None and "pbc" not in of_shape:
        comment.append('pbc="T T T"')
    lines = [str(len(pos)), " ".join(comment)]
    lines += [" ".join(row) for row in zip(*columns, strict=True)]
    file.write(("\n".join(lines) + "\n").encode())


def _plain(parts: Parts, name: str) -> str:
    if re.search(r'[\s:="]', name):
        raise fault(
            parts.path, "names without blanks, colons, = and quotes", f"{name!r}", "rename it"
        )
    return name


def _words(values: np.ndarray) -> list[str]:
    """Numbers that are read back as the same; T and F of bools."""
    if values.dtype.kind == "b":
        return ["T" if value else "F" for value in values.tolist()]
    if values.dtype.kind == "f" and values.itemsize < 8:
        return [f"{value:.9g}" for value in values.tolist()]
    return [repr(value) for value in values.tolist()]


@reads(
    ".cif",
    contents=Contents(
        read=(
            "the atoms of the whole cell, `cell`; masses of isotopes; `occupancy` where a site is"
            " occupied in part"
        ),
        noted=(
            "partial and mixed occupancy, which are warned of; further structures of the file; "
            "other columns of sites (displacements, charges)"
        ),
        refused="a mixture as the symbol of one site; mmCIF",
    ),
)
def read_cif(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The atoms of the whole cell, by ASE."""
    try:
        from ase.io.cif import read_cif as read_by_ase
    except ImportError:
        raise need_extra("ase", "crystal") from None
    blob = read(path, max_bytes)
    text = io.StringIO(blob.data.decode("utf-8", "replace"))
    try:
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            blocks = iter(read_by_ase(text, slice(0, 2), store_tags=True))
            atoms = next(blocks, None)
            others = sum(1 for _ in blocks)
    except Exception as error:  # ASE raises whatever its parser meets
        raise blob.fault(
            "a CIF file", f"{type(error).__name__}: {str(error)[:200]}", "export it again"
        ) from None
    if atoms is None:
        raise blob.fault(
            "a CIF file of a crystal",
            "none with places of atoms",
            "export it again; of a protein (mmCIF) ase.io.read of its .pdb",
        )
    formula = next(filter(_MIXTURE.search, atoms.info.get("_atom_site_type_symbol", ())), None)
    if formula is not None:
        raise blob.fault(
            "one element for each site", formula, "write a row with its occupancy for each element"
        )
    notes = [str(message.message).split("\n")[0][:200] for message in messages]
    left = [tag.removeprefix(_SITE) for tag in atoms.info if tag.startswith(_SITE)]
    left = sorted(set(left) - _OF_SITES)
    if left:
        notes.append(f"left out, of sites: {', '.join(left)}"[:200])
    points = {"pos": atoms.positions, "z": atoms.numbers.astype(np.int64)}
    if atoms.has("masses"):  # of deuterium, whose z is 1
        points["masses"] = atoms.get_masses()
    doubts = []
    if others:
        doubts.append("the file has several structures, of which the first is read")
    occupancy, doubt = _occupancy(atoms)
    if doubt:
        points["occupancy"] = occupancy
        doubts.append(doubt)
    cell = {"cell": np.array(atoms.cell), "pbc": np.array(atoms.pbc)}
    return Raw(blob, points, others=cell, notes=tuple(notes), doubt="; ".join(doubts))


def _occupancy(atoms: Any) -> tuple[np.ndarray, str]:
    """The occupancy (N,) of each site by its atom, and a doubt if any is not 1."""
    sites = atoms.info.get("occupancy", {})
    kinds = atoms.arrays.get("spacegroup_kinds", np.arange(len(atoms)))
    shares = np.ones(len(atoms))
    mixed = []
    for row, (kind, symbol) in enumerate(zip(kinds, atoms.symbols, strict=True)):
        species = sites.get(str(kind), {})
        share = species.get(symbol, 1)
        if isinstance(share, int | float):  # and no ? or .
            shares[row] = share
        if len(species) > 1:
            mixed.append(species)
    if (shares == 1).all() and not mixed:
        return shares, ""
    doubt = f"{(shares != 1).sum():,} of {len(shares):,} sites are occupied in part: occupancy"
    if mixed:
        parts = ", ".join(f"{symbol} {share}" for symbol, share in mixed[0].items())
        doubt += f"; {len(mixed):,} hold several elements ({parts}), of which z is one"
    return shares, doubt

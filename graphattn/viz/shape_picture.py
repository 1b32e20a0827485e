"""A cloud or a mesh in colours: its own, any property, labels, a prediction, its error."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..arguments import check_flags, real, several, shown, table
from ..errors import OptionError, ShapeError
from ..printed import counted
from .box import box_of
from .colours import Colouring, colouring, error_of, plainly, values_of
from .creases import SMOOTH, checked_smooth
from .layouts.pick import points_of
from .style import TEXT, empty_figure, labels, plain, scales, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IN_A_ROW = 3
_SIDE = 3.2  # inches, the width of a panel
_MOST_LINES = 4  # a point
_SHAPES = (0.4, 1.25)  # of a panel: its height to its width


def plot_shape(
    shape: Any,
    color: Any = None,
    *,
    prediction: Any = None,
    names: Any = None,
    camera: tuple[float, float] | None = None,
    smooth: float | bool = SMOOTH,
    figure: Any = None,
    caption: bool = True,
    title: str | None = None,
) -> "Figure":
    """A point cloud or mesh, coloured by itself or a property, with prediction and error.

    Hidden points and faces are hidden, surfaces are shaded smoothly but for their creases, near
    points are larger, and a shape with ``cell`` is in its box. Whole numbers (at most 64 different
    ones) are labels; other numbers amounts on a scale, whose middle is 0 where they have both signs.

    Args:
        shape: PyG's ``Data`` with ``pos`` (N, 2) or (N, 3) and, of a mesh, ``face`` (3, F), as
            :func:`graphattn.load` returns it; or positions alone. The lines of a curve or a tree,
            ``edge_index`` (2, L), are drawn, too, where a point has 4 or fewer on average.
        color: The name of a property of ``shape``, or values: (N,) of nodes or (F,) of faces, or
            (N, 3) red, green and blue in [0, 1]. By default ``y`` if it has a value for each, else
            ``color``, else one grey.
        prediction: (N,) or (F,): drawn beside the truth, which ``color`` names, on the same scale,
            and beside both the error: where labels are wrong, or how much the prediction is too
            large or too small.
        names: Names of the labels, a list or a dictionary by number.
        camera: Elevation and azimuth of the eye, degrees; by default from above and in front, of
            what is flat as a landscape from higher up.
        smooth: An edge is a crease where the normals of its faces differ by more than this angle,
            degrees; True for no creases, False for flat faces.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Sentences below: what is drawn and what is left out.
        title: A line above; by default the name of the file and how many points and faces there
            are. ``""`` for none.

    Returns:
        A matplotlib ``Figure``; ``figure.savefig("shape.png")`` writes it.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        ShapeError: If there are no positions, or values do not fit them.

    Example:
        >>> import torch
        >>> pos = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> figure = plot_shape(pos, pos[:, 2])
        >>> figure.get_suptitle()
        '300 points'
    """
    check_flags(caption=caption)
    at, faces, panels = panels_of(shape, color, prediction, names)
    place = points_of(at, faces, box_of(shape))
    if camera is not None:
        expected = "must be two numbers, elevation and azimuth in degrees"
        angles = [real(angle, "camera") for angle in several(camera, "camera", expected)]
        if len(angles) != 2:
            raise OptionError(f"camera {expected}, got {len(angles)}")
        place.camera = angles[0], angles[1]
    place.smooth = checked_smooth(smooth)
    lines = _lines_of(shape, len(at))
    low, high = place.frame()
    tall = _SIDE * float(np.clip((high - low)[1] / (high - low)[0], *_SHAPES))
    columns = min(len(panels), _IN_A_ROW)
    rows = -(-len(panels) // columns)
    legends = (len(panels) > 1) + any(panel.labels or panel.scale for panel in panels)
    canvas = empty_figure(figure, _SIDE * columns + 0.4 + 0.9 * legends, tall * rows + 0.7)
    sentences: list[str] = []
    for i, colours in enumerate(panels):
        ax = canvas.add_subplot(rows, columns, i + 1)
        place.colours = colours
        outside = [sentence for sentence in place.ground(ax) if "outside" in sentence]
        place.edges(ax, *lines)
        sentences += [*colours.remarks, *outside]
        if colours.name and (len(panels) > 1 or title != ""):
            ax.set_title(plain(colours.name), fontsize=TEXT)
    _legends(canvas, panels)
    line = (
        called(shape, len(at), 0 if faces is None else len(faces))
        if title is None
        else title or None
    )
    titled(canvas, line, list(dict.fromkeys(sentences)) * caption)
    return canvas


def panels_of(
    shape: Any, color: Any, prediction: Any, names: Any
) -> tuple[Any, Any, list[Colouring]]:
    """Positions, faces (F, 3) or ``None``, and a colouring for each panel.

    Raises:
        ShapeError: If there are no positions, or values do not fit them.
    """
    at, faces = geometry_of(shape)
    counts: tuple[int, ...] = (len(at),)
    if faces is not None:
        counts = (len(at), len(faces))
    name, true_values = _truth(shape, color, counts, prediction is None)
    if true_values is None:
        truth = None
    else:
        truth = values_of(true_values, name, counts)
    if prediction is None:
        return at, faces, [plainly(len(at)) if truth is None else colouring(truth, name, names)]
    guess = values_of(prediction, "prediction", counts)
    if truth is None:
        return at, faces, [colouring(guess, "prediction", names)]
    error = error_of(truth, guess)
    limits = None
    amounts = np.concatenate([values.astype(np.float64) for values in (truth, guess)])
    amounts = amounts[np.isfinite(amounts)]
    if len(amounts):
        limits = (float(amounts.min()), float(amounts.max()))
    panels = [
        colouring(values, called, names, limits)
        for values, called in ((truth, name), (guess, "prediction"))
    ]
    return at, faces, [*panels, error]


def called(shape: Any, points: int, faces: int) -> str:
    """The name of its file and its size."""
    size = counted(points, "point") + f", {counted(faces, 'face')}" * bool(faces)
    name = getattr(shape, "file", "")
    if name:
        return f"{name}: {size}"
    return size


def geometry_of(shape: Any) -> tuple[Any, Any]:
    """Positions, and faces (F, 3) or ``None``, of a shape or of positions alone."""
    at = shape
    if hasattr(shape, "keys"):
        at = getattr(shape, "pos", None)
    if at is None:
        raise ShapeError("shape must have positions: pos (N, 2) or (N, 3); got a shape without pos")
    at = table(at, "pos", "numbers (N, 2) or (N, 3)", ShapeError)
    if at.ndim != 2:
        raise ShapeError(f"pos must be numbers (N, 2) or (N, 3), got {shown(at)}")
    face = getattr(shape, "face", None)
    return at, None if face is None else table(face, "face", "integers (3, F)", ShapeError).t()


def _lines_of(shape: Any, num_points: int) -> Any:
    """Ends (2, L) of the lines of a curve or a tree; none of a graph with more than 4 a point."""
    ends = getattr(shape, "edge_index", None)
    if ends is None or ends.shape[1] > _MOST_LINES * num_points:
        return np.empty((2, 0), np.int64)
    return ends.cpu().numpy()


def _truth(shape: Any, color: Any, counts: tuple[int, ...], or_color: bool) -> tuple[str, Any]:
    """The name and the values of what colours a shape; ``("", None)`` for nothing."""
    if isinstance(color, str):
        return color, named(shape, color)
    if color is not None:
        return "color", color
    names = ["y"]
    if or_color:
        names.append("color")
    for name in names:
        values = getattr(shape, name, None)
        if torch.is_tensor(values) and values.ndim and len(values) in counts and len(values) > 1:
            return name, values
    return "", None


def named(shape: Any, color: str) -> Any:
    """A property of a shape.

    Raises:
        ShapeError: If it does not have it.
    """
    has = []
    if hasattr(shape, "keys"):
        has = list(shape.keys())
    if color in has:
        return shape[color]
    words = ", ".join(has) or "positions alone"
    raise ShapeError(
        f'color names the property "{color}", which the shape does not have; it has {words}'
    )


def _legends(figure: Any, panels: list[Colouring]) -> None:
    """Labels and scales beside the last panels that share them: truth, prediction, error."""
    shared = [panels]
    if len(panels) > 1:
        shared = [panels[:-1], panels[-1:]]
    axes = list(figure.axes)
    for ax, of in zip(axes[-len(shared) :], shared, strict=True):
        labels(ax, [pair for panel in of for pair in panel.labels])
    scales(figure, axes, panels)

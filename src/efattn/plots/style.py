"""One calm look for every picture: a title in words at the left, a grey line below it, thin axes, few colours.

The colours are Okabe and Ito's, and the scales are ones that colour-blind readers can tell apart.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from efattn import storage
from efattn.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, INK, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#222222", "#6B6B6B", "#D9D9D9"
WEIGHTS, VALUES, ERRORS = "Blues", "RdYlBu_r", "PuOr_r"
DOTS_PER_INCH = 200
LOOK: dict[str, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in this look, whatever the caller's settings are, and leave those alone."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(LOOK)  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return drawn


def page(width: float, height: float, title: str, subtitle: str = "") -> "Figure":
    """An empty figure, in inches, with its title and room for it."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    lines = subtitle.count("\n") + 1 if subtitle else 0
    top = 0.46 + 0.19 * lines
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0.01, 0.01, 0.98, 1 - top / height - 0.01), wspace=0.06, hspace=0.08)  # type: ignore[call-arg]
    place: dict[str, Any] = {"x": 0.16 / width, "ha": "left", "va": "top"}
    heading = figure.suptitle(title, y=1 - 0.14 / height, fontsize=13, fontweight="bold", **place)
    heading.set_in_layout(False)
    if subtitle:
        below = figure.text(y=1 - 0.42 / height, s=subtitle, fontsize=10, color=GREY, linespacing=1.3, **place)
        below.set_in_layout(False)
    return figure


def bare(axes: "Axes") -> None:
    """No frame and no tick marks; the labels stay."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def save(figure: "Figure", path: str | Path) -> None:
    """As a PNG file, there whole or not at all."""
    try:
        with storage.beside(path) as part:
            figure.savefig(part, format="png", dpi=DOTS_PER_INCH)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be written: {error.strerror or error}. Choose another path.") from error

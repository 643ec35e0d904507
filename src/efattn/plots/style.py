"""One calm look for every picture: a title in words at the left, a grey line below it, thin axes, few colours.

The colours are Okabe and Ito's, and the scales are ones that colour-blind readers can tell apart. A picture is given as
its Axes, or several as `Panels`; a notebook shows either.
"""

import functools
import io
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, final

from efattn import storage
from efattn.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, INK, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#222222", "#6B6B6B", "#D9D9D9"
ON_DARK, ON_LIGHT, ON_PALE = "#FEFEFE", "#212121", "#6A6A6A"  # letters on a fill, whatever the page is
WEIGHTS, VALUES, ERRORS = "Blues", "RdYlBu_r", "PuOr_r"
DOTS_PER_INCH, LETTERS = 200, 28  # of a name in a picture
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


@final
class Panels(tuple["Axes", ...]):
    """The Axes of a picture that has several, from left to right and from top to bottom."""

    __slots__ = ()

    @property
    def figure(self) -> "Figure":
        return figure_of(self[0])

    def _repr_png_(self) -> bytes:
        return as_png(self.figure, 100)


def picture(draw: Callable[P, Any]) -> Callable[P, Any]:
    """What draws a figure in this look, as what gives its Axes, or Panels; colour bars are not among them."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Any:
        figure = figure_of(styled(draw)(*args, **kwargs))
        panels = Panels(x for x in figure.axes if x.get_label() != "<colorbar>" and x.get_visible())
        if len(panels) > 1:
            return panels
        panels[0]._repr_png_ = functools.partial(as_png, figure, 100)  # type: ignore[attr-defined]
        return panels[0]

    return drawn


def figure_of(picture: Any) -> "Figure":
    """Of a Figure, of Axes or of Panels."""
    return picture if hasattr(picture, "savefig") else picture.figure


def as_png(figure: "Figure", dots: int = DOTS_PER_INCH) -> bytes:
    file = io.BytesIO()
    with without_glyphs():
        figure.savefig(file, format="png", dpi=dots)
    return file.getvalue()


class without_glyphs(warnings.catch_warnings):
    """A letter that the font lacks is drawn as a box, without a warning: names come in all scripts."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")


def label(name: Any, letters: int = LETTERS) -> str:
    """A name from a table, to stand in a picture: short, on one line, and no formula."""
    text = " ".join(map(str, name)) if isinstance(name, tuple) else "unknown" if name is None else str(name)
    text = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)
    text = text if len(text) <= letters else text[: letters - 1].rstrip() + "…"
    return text.replace("$", r"\$")


def fitted(model: Any) -> Any:
    """What a fit gave, of an estimator or as it is."""
    return model._fitted() if hasattr(model, "_fitted") else model


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


def save(picture: Any, path: str | Path) -> None:
    """As a PNG file, there whole or not at all. picture: what a function of plots gives, or a Figure."""
    try:
        with storage.beside(path) as part:
            part.write_bytes(as_png(figure_of(picture)))
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be written: {error.strerror or error}. Choose another path.") from error

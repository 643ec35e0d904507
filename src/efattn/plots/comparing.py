"""How far models are from one another, with how sure that is."""

from typing import Any

from efattn.errors import DataError
from efattn.plots import style

COLOURS = {"ahead": style.ORANGE, "level": style.GREY, "behind": style.BLUE}


@style.picture
def differences(comparison: Any, *, title: str | None = None, subtitle: str | None = None) -> Any:
    """Of a comparison: a dot for each model's mean log-likelihood less EFA's, a line for two standard errors, one panel
    per term; hollow: a part of EFA, which does not compete."""
    efa = comparison.reference
    rows = {
        term: [x for x in comparison.lines if x.term == term and x.difference is not None] for term in comparison.terms
    }
    shown = {term: lines for term, lines in rows.items() if lines}
    if not shown:
        raise DataError(f"There is nothing to compare {efa} with, and so nothing to draw.")
    line = "Mean log-likelihood of a row less that of EFA; the line is two standard errors over groups."
    longest = max(map(len, shown.values()))
    figure = style.page(
        7.4, 1.5 + 0.3 * longest * len(shown) + 0.5 * len(shown), title or f"Beside {efa}",
        line.replace("EFA", efa) if subtitle is None else subtitle,
    )  # fmt: skip
    for k, (term, lines) in enumerate(shown.items()):
        axes = figure.add_subplot(len(shown), 1, k + 1)
        axes.axvline(0, color=style.INK, linewidth=1.1, zorder=1)
        for place, one in enumerate(lines):
            colour = COLOURS[one.standing]
            reach = 2 * one.error
            axes.hlines(place, one.difference - reach, one.difference + reach, color=colour, linewidth=2.2, alpha=0.5)
            face = colour if one.peer else "white"
            edge = "white" if one.peer else colour
            axes.scatter(one.difference, place, s=50, color=face, edgecolors=edge, linewidths=1.2, zorder=3)
        axes.set_yticks(range(len(lines)), [one.model.replace("$", r"\$") for one in lines])
        axes.set_ylim(len(lines) - 0.5, -0.5)
        _scale(axes, lines)
        axes.grid(axis="x", color=style.PALE, linewidth=0.6)
        axes.set_axisbelow(True)
        style.bare(axes)
        axes.set_title(term if len(shown) > 1 else "")
    axes.set_xlabel(f"nats a row; right of the line is ahead of {efa}")
    return figure


def _scale(axes: Any, lines: Any) -> None:
    """To one scale unless a model is far off: then logarithmic beyond ten times the nearest's distance."""
    gaps = sorted(abs(one.difference) + 2 * one.error for one in lines)
    near, far = gaps[len(gaps) // 3], gaps[-1]
    if far > 20 * near > 0:
        axes.set_xscale("symlog", linthresh=2 * near, linscale=1.0)

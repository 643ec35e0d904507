"""The paper's theorems and propositions, from the files of results/theory."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.experiments import theory
from efattn.experiments.page.blocks import Block, Heading, Text, listing, picture, table
from efattn.experiments.page.numbers import number, short
from efattn.experiments.page.results import Results
from efattn.plots import style
from efattn.theory import vacuity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Part = dict[str, Any]
PROPOSITIONS = (
    "Latent factor models and the attention models that Propositions 1 to 3 make of them: the largest difference of "
    "natural parameters over random data and parameters, in double precision."
)
IDENTIFIABILITY = (
    "Two fits that differ in their seeds only. R² is of one fit's embeddings by a linear map of the other's; the "
    "controls are an untrained network in the other's place and rows in a random order. Theorem 1 speaks of embeddings "
    "whose diversity conditions (below) hold in both fits; the others are described, not identified, as are features "
    "of which the head reads more than there are values. Natural parameters are what the likelihood knows, without a "
    "theorem. With about as many dimensions as points any control fits by chance, which is why it is there."
)
DIVERSITY = (
    "Theorem 1 asks for contexts and items that are diverse enough: matrices I, II and III must be invertible. Rank "
    "and condition number on test rows, of the worst where there are several."
)
BOUND = (
    "The term of Theorem 2's bound for a model fitted to October temperatures of stations: it holds up to a universal "
    "constant and for clipped ReLU attention, so that for this softmax fit it is indicative. The numbers it is made of:"
)


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Theory")
    missing = [part.__name__ for part in theory.PARTS if part.__name__ not in results.theory]
    if missing:
        yield Text(f"Not run yet: {listing(missing)}.")
    drawn = {
        "propositions": _propositions,
        "identifiability": _identifiability,
        "diversity": _diversity,
        "bound": _bound,
        "excess": _excess,
    }
    for name, section in drawn.items():
        if name in results.theory:
            yield from section(results.theory[name])


def _rows(part: Part, names: Sequence[str]) -> list[list[str]]:
    columns = part["columns"]
    return [[short(x) for x in row] for row in zip(*(columns[name] for name in names), strict=True)]


def _propositions(part: Part) -> Iterator[Block]:
    yield Heading("Latent factor models are attention models", 3)
    yield Text(f"{PROPOSITIONS} The largest of all is {short(part['difference'])}.")
    names = ("proposition", "model", "context", "intercept", "rows", "largest", "difference")
    head = (*names[:5], "largest natural parameter", "largest difference")
    rows = sorted(zip(*(part["columns"][name] for name in names), strict=True), key=lambda row: row[0])
    yield table(head, [[short(x) for x in row] for row in rows], words=4)


def _identifiability(part: Part) -> Iterator[Block]:
    yield Heading("Do fits agree up to a linear map?", 3)
    yield Text(IDENTIFIABILITY)
    columns = part["columns"]
    marks = [f"{short(yes)}: {why}" for yes, why in zip(columns["identified"], columns["reason"], strict=True)]
    names = ("data", "term", "quantity", "identified", "n", "dimensions", "r2", "r2_untrained", "r2_permuted")
    head = ("data", "term", "quantity", "identified", "points", "dimensions", "R²", "R², untrained", "R², permuted")
    more = ("correlation", "correlation_untrained", "correlation_permuted")
    words = ("canonical correlation", "untrained", "permuted")
    yield table((*head, *words), _rows({"columns": {**columns, "identified": marks}}, (*names, *more)), words=4)
    yield Text(_above_controls(columns))


def _above_controls(columns: dict[str, list[Any]]) -> str:
    """Where agreement says something, and where it does not."""
    every = zip(*(columns[name] for name in ("data", "term", "quantity", "above_controls")), strict=True)
    below = [f"{quantity} of {data} ({term})" for data, term, quantity, above in every if not above]
    if not below:
        return "Every R² is above those of its controls."
    return f"No better than a control, so that the agreement says nothing: {listing(below)}."


def _diversity(part: Part) -> Iterator[Block]:
    yield Heading("Diversity", 3)
    yield Text(DIVERSITY)
    names = ("data", "term", "diversity", "holds", "size", "rank", "points", "condition", "worst_of", "share")
    head = (
        "data",
        "term",
        "matrix",
        "holds",
        "size",
        "rank",
        "points",
        "condition number",
        "worst of",
        "share invertible",
    )
    yield table(head, _rows(part, names), words=4)


def _bound(part: Part) -> Iterator[Block]:
    yield Heading("The bound on the excess loss", 3)
    yield Text(BOUND)
    columns = part["columns"]
    named = {"feed_forward": "feed-forward width", "hidden": "hidden width of places", "output": "width of places"}
    named |= {"largest_value": "largest value", "radius": "clip radius", "term": "the bound's term"}
    named |= {"marginal_loss": "loss of predicting the mean"}
    rows = [[named.get(name, name), short(column[0])] for name, column in columns.items() if column]
    yield table(("quantity", "value"), rows)
    yield Text(vacuity(columns["term"][0], columns["marginal_loss"][0]))


def _excess(part: Part) -> Iterator[Block]:
    yield Heading("Excess loss falls as data grow", 3)
    columns, slope, without = part["columns"], part["slope"], part["without_context"]
    steep = "as fast as the bound, or faster" if slope <= -0.5 else "more slowly than the bound"
    yield Text(
        f"Held-out excess loss (mean squared error / 2) of fits to growing numbers of groups F. The bound "
        f"falls as F to the power of {number(-0.5, 1)}; the slope here is {number(slope, 2)}, {steep}. The floor "
        f"that it is measured from is {short(part['floor'])}; predicting the mean, without context, has an excess loss "
        f"of {short(without)}. {_vacuous(columns, without)}"
    )
    yield picture(
        "theory-excess", _draw(columns, slope), "Excess loss against the number of groups, both on log scales."
    )


def _vacuous(columns: dict[str, list[Any]], without_context: float) -> str:
    """Where the bound promises less than predicting the mean does."""
    terms = columns["term"]
    groups = {g for g, term in zip(columns["groups"], terms, strict=True) if term > without_context}
    if not groups:
        return "The bound's term is below that at every F."
    where = "at every F" if groups == set(columns["groups"]) else f"up to F = {max(groups):,}"
    return (
        f"The bound itself is vacuous {where}: its term, {short(min(terms))} to {short(max(terms))}, is larger "
        "than that, and promises nothing."
    )


@style.styled
def _draw(columns: dict[str, list[Any]], slope: float) -> "Figure":
    groups, excess = np.array(columns["groups"], float), np.array(columns["excess"], float)
    subtitle = f"Slope {number(slope, 2)} on log scales; Theorem 2's bound has {number(-0.5, 1)}."
    figure = style.page(6.4, 4.4, "Excess loss falls as data grow", subtitle)
    axes = figure.add_subplot()
    at = np.unique(groups)
    mean = np.array([excess[groups == g].mean() for g in at])
    shown = excess > 0
    axes.scatter(groups[shown], excess[shown], s=20, color=style.BLUE, alpha=0.5, linewidths=0, label="one fit")
    axes.plot(at, mean, color=style.BLUE, marker="o", ms=6, linewidth=0, label="mean")
    middle = np.exp(np.log(at).mean()), np.exp(np.log(np.maximum(mean, 1e-12)).mean())
    for power, line, colour, name in (
        (slope, "-", style.BLUE, "fitted slope"),
        (-0.5, ":", style.ORANGE, "slope of the bound"),
    ):
        axes.plot(at, middle[1] * (at / middle[0]) ** power, linestyle=line, color=colour, linewidth=1.6, label=name)
    axes.set(xscale="log", yscale="log", xlabel="groups F", ylabel="held-out excess loss")
    axes.set_xticks(at, [f"{g:,.0f}" for g in at])
    axes.set_xticks([], minor=True)
    axes.grid(color=style.PALE, linewidth=0.6)
    axes.legend(loc="lower left")
    return figure

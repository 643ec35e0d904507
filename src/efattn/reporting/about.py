"""What a page says about the data and about the model, in tables."""

import inspect
from typing import Any

import numpy as np

from efattn.data.roles import SEVERAL, SINGLE
from efattn.errors import counted
from efattn.inference import Fitted
from efattn.inference.summary import LOOKS_AT, last_fit
from efattn.plots import style
from efattn.reporting.blocks import Bullets, Grid, Text, Tile, number, score
from efattn.reporting.look import Look

WORDS = {"item": "which item", "value": "values"}


def tiles(fitted: Fitted, look: Look | None) -> list[Tile]:
    """The numbers to begin with."""
    sizes, found = fitted.sizes, list[Tile]()
    found.append(Tile(f"{sizes['rows']:,}", "rows in the fit"))
    found.append(Tile(f"{sizes['groups']:,}", "groups in the fit"))
    if fitted.schema.vocabulary is not None:
        found.append(Tile(f"{len(fitted.vocabulary):,}", "items"))
    evaluation = None if look is None else look.evaluation
    for line in () if evaluation is None else evaluation.lines:
        if line.part != "all" or line.mean is None:
            continue
        if line.metric == "log_score":
            found.append(Tile(score(line.mean), f"log score of {line.of}, this table"))
        if line.metric == "inside" and line.k == 0.9:
            found.append(Tile(f"{line.mean:.0%}", f"of {line.of} inside 90 % intervals"))
        if line.metric == "ndcg" and line.k == 10:
            found.append(Tile(f"{line.mean:.3f}", "NDCG of lists of 10"))
    return found[:8]


def data(look: Look) -> list[Any]:
    groups, roles = look.groups, look.fitted.schema.roles
    lengths = groups.lengths
    rows = [["rows", f"{look.rows:,}"], ["groups", f"{look.number:,}"]]
    rows.append(["rows a group", f"{lengths.min():,} to {lengths.max():,}, median {np.median(lengths):,g}"])
    if groups.item is not None:
        known = groups.item < len(look.fitted.vocabulary)
        rows.append(["items", f"{len(np.unique(groups.item[known])):,} of {len(look.fitted.vocabulary):,} known ones"])
        if not known.all():
            rows.append(["rows of unknown items", f"{int((~known).sum()):,}"])
    blocks: list[Any] = [Grid(("", ""), rows, 2)]
    if len(groups) < look.number:
        how = "the last times" if groups.lagged is not None else f"drawn at random with seed {look.seed}"
        some = f"{counted(len(look.table), 'row')} in {counted(len(groups), 'group')}"
        blocks.append(Text(f"This page looks at {some} of this table, whole groups, {how}."))
    blocks.append(Text(_seen(look), quiet=True))
    if groups.value is not None:
        blocks.append(_values(look, roles.of("value")))
    return blocks


def _seen(look: Look) -> str:
    seen, many = look.seen, len(look.groups)
    if seen is None:
        return "This model does not say which groups it was fitted to: scores may be of rows that it has seen."
    if not seen:
        return "None of these groups was there when the model was fitted."
    who = "All of these groups were" if seen == many else f"{seen:,} of these {many:,} groups were"
    return f"{who} there when the model was fitted: scores are kinder than they will be on new ones."


def _values(look: Look, names: tuple[str, ...]) -> Grid:
    rows = []
    assert look.groups.value is not None
    for name, y in zip(names, look.groups.value.T, strict=True):
        there = y[~np.isnan(y)]
        lost = len(y) - len(there)
        gone = f"{lost:,} ({lost / len(y):.1%})" if lost else "none"
        told = [there.mean(), there.std(), *np.quantile(there, (0, 0.5, 1))] if len(there) else [None] * 5
        rows.append([name, *(number(x) for x in told), gone])
    return Grid(("values", "mean", "sd", "least", "median", "most", "missing"), rows, 1)


def model(fitted: Fitted, version: str, when: str) -> list[Any]:
    roles, several = fitted.schema.roles, len(fitted.members)
    rows = [["model", f"{fitted.estimator}: each observation given {LOOKS_AT.get(fitted.context, fitted.context)}"]]
    rows += [[role, ", ".join(roles.of(role))] for role in (*SEVERAL, *SINGLE) if roles.of(role)]
    rows.append(["modelled", " and ".join(WORDS.get(term, term) for term in fitted.terms)])
    for name in fitted.names:
        rows += _term(fitted, name)
    if several > 1:
        rows.append(["members", f"{several}, whose mixture predicts"])
    options = _options(fitted)
    rows.append(["options", ", ".join(options) if options else "all defaults"])
    rows.append(["seed", str(fitted.parameters.get("seed", 0))])
    for name, one in fitted.calibration.items():
        rows.append(["calibrated", f"intervals of {name}, by {counted(one.groups, 'group')} that it has not seen"])
    rows.append(["efattn", f"version {version}; this page was made {when}"])
    return [Grid(("", ""), rows, 2)]


def _term(fitted: Fitted, name: str) -> list[list[str]]:
    term, rows = fitted.members[0][name], list[list[str]]()
    if term.of_items:
        distinct = ", none twice in a group" if term.support == "distinct" else ""
        rows.append([f"family of {name}", f"categorical, one of {term.family.size:,} items{distinct}"])
    elif fitted.family is not None:
        for part, _, columns in fitted.family.slices():
            mine = fitted.schema.roles.of("value")[columns]
            why = next((str(note) for note in fitted.notes if note.kind == "family" and note.column == mine[0]), "")
            shown = _short(repr(part))
            rows.append([f"family of {', '.join(mine)}", why.split(": ", 1)[-1].rstrip(".") if why else shown])
    count = sum(p.numel() for p in term.parameters())
    if count:
        kind = "item" if term.of_items else "value"
        names = ("layers", "heads", "width")
        sizes = {key: x for key, x in fitted.parameters.items() if key in names} | dict(fitted.network.get(kind, {}))
        known = ", ".join(f"{key} {sizes[key]}" for key in names if sizes.get(key, "auto") != "auto")
        rows.append([f"network of {name}", f"{known}; {count:,} parameters" if known else f"{count:,} parameters"])
        seconds = sum(r["seconds"] for k in range(len(fitted.members)) for r in last_fit(fitted, name, k))
        epochs = [len(last_fit(fitted, name, k)) for k in range(len(fitted.members))]
        rows.append([f"trained, {name}", f"{' + '.join(map(str, epochs))} epochs in {seconds:,.0f} s"])
    return rows


def _options(fitted: Fitted) -> list[str]:
    """Those that were not left as they are by default."""
    from efattn import estimators

    kind = getattr(estimators, fitted.estimator, None)
    if kind is None:
        return []
    usual = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    return [
        _short(f"{name}={x!r}")
        for name, x in fitted.parameters.items()
        if name != "seed" and repr(usual.get(name)) != repr(x)
    ]


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def notes(fitted: Fitted, look: Look | None) -> list[Any]:
    told = [str(note) for note in fitted.notes] + [str(note) for note in (look.notes if look is not None else ())]
    lines = list(dict.fromkeys(told))
    return [Bullets(lines)] if lines else [Text("There is nothing to say beyond the above.", quiet=True)]


def group_name(look: Look, number: int) -> str:
    """Of a group, by its number in this look; short."""
    if not look.groups.columns:
        return "all rows"
    return style.label(look.groups.labels[number], 32).replace(r"\$", "$")

"""What a page says about the data and about the model, in tables."""

import inspect
from typing import Any

import numpy as np

from efattn.data import Wide
from efattn.data.roles import SEVERAL, SINGLE
from efattn.errors import counted
from efattn.inference import Fitted, calibration
from efattn.inference.summary import LOOKS_AT, last_fit
from efattn.plots import style
from efattn.reporting.blocks import Bullets, Grid, Text, Tile, number, score
from efattn.reporting.look import Look

MOST_COLUMNS = 60  # of a wide table that are listed
WORDS = {"item": "which item", "value": "values"}


def tiles(fitted: Fitted, look: Look | None) -> list[Tile]:
    """The numbers to begin with."""
    sizes, found = fitted.sizes, list[Tile]()
    if fitted.wide is None:
        found.append(Tile(f"{sizes['rows']:,}", "rows in the fit"))
    found.append(Tile(f"{sizes['groups']:,}", "groups in the fit" if fitted.wide is None else "rows in the fit"))
    if fitted.schema.vocabulary is not None:
        found.append(Tile(f"{len(fitted.vocabulary):,}", "items" if fitted.wide is None else "columns"))
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
    groups, wide = look.groups, look.wide
    lengths = groups.lengths
    if wide is not None:
        rows = [["rows", f"{look.whole:,}"], ["columns", f"{len(wide.columns):,}"]]
    else:
        rows = [["rows", f"{look.rows:,}"], ["groups", f"{look.whole:,}"]]
        rows.append(["rows a group", f"{lengths.min():,} to {lengths.max():,}, median {np.median(lengths):,g}"])
    if groups.item is not None and wide is None:
        known = groups.item < len(look.fitted.vocabulary)
        rows.append(["items", f"{len(np.unique(groups.item[known])):,} of {len(look.fitted.vocabulary):,} known ones"])
        if not known.all():
            rows.append(["rows of unknown items", f"{int((~known).sum()):,}"])
    blocks: list[Any] = [Grid(("", ""), rows, 2)]
    if len(groups) < look.whole:
        how = "the last times" if groups.lagged is not None else f"drawn at random with seed {look.seed}"
        some = f"{counted(len(look.table), 'row')} in {counted(len(groups), 'group')}"
        some = some if wide is None else counted(len(groups), "row")
        blocks.append(Text(f"This page looks at {some} of this table, whole groups, {how}."))
    blocks.append(Text(_seen(look), quiet=True))
    if groups.value is not None:
        blocks.append(_columns(look, wide) if wide is not None else _values(look, look.fitted.schema.roles.of("value")))
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
    assert look.groups.value is not None
    rows = [[name, *_spread(y)] for name, y in zip(names, look.groups.value.T, strict=True)]
    return Grid(("values", "mean", "sd", "least", "median", "most", "missing"), rows, 1)


def _columns(look: Look, wide: Wide) -> Grid:
    """Of a wide table, a line a column."""
    rows, item, value = [], look.groups.item, look.groups.value
    assert item is not None
    assert value is not None
    for column in wide.columns[:MOST_COLUMNS]:
        y = value[item == look.fitted.vocabulary.number(column.name), 0]
        told = _spread(y)
        if column.levels:
            share = np.bincount(y[~np.isnan(y)].astype(int), minlength=len(column.levels)) / max(len(y), 1)
            most = int(share.argmax())
            told = [
                f"{counted(len(column.levels), 'level')}",
                "",
                "",
                f"{column.levels[most]} ({share[most]:.0%})",
                "",
                told[-1],
            ]
        rows.append([column.name, *told])
    return Grid(("column", "mean", "sd", "least", "median", "most", "missing"), rows, 1)


def _spread(y: np.ndarray) -> list[str]:
    there = y[~np.isnan(y)]
    lost = len(y) - len(there)
    told = [there.mean(), there.std(), *np.quantile(there, (0, 0.5, 1))] if len(there) else [None] * 5
    return [*(number(x) for x in told), f"{lost:,} ({lost / len(y):.1%})" if lost else "none"]


def lead(fitted: Fitted) -> str:
    """What it is and what it was fitted to, in a sentence."""
    rows, groups = (fitted.sizes[name] for name in ("rows", "groups"))
    if fitted.wide is not None:
        columns = counted(len(fitted.wide.columns), "column")
        return f"Each cell given the rest of its row, fitted to {counted(groups, 'row')} of {columns}."
    looks = LOOKS_AT.get(fitted.context, fitted.context)
    return f"Each observation given {looks}, fitted to {counted(rows, 'row')} in {counted(groups, 'group')}."


def model(fitted: Fitted, version: str, when: str) -> list[Any]:
    roles, several = fitted.schema.roles, len(fitted.members)
    rows = [["model", f"{fitted.estimator}. {lead(fitted)}"]]
    if fitted.wide is None:
        rows += [[role, ", ".join(roles.of(role))] for role in (*SEVERAL, *SINGLE) if roles.of(role)]
        rows.append(["modelled", " and ".join(WORDS.get(term, term) for term in fitted.terms)])
    for name in fitted.names:
        rows += _term(fitted, name)
    if several > 1:
        rows.append(["members", f"{several}, whose mixture predicts"])
    options = _options(fitted)
    rows.append(["options", ", ".join(options) if options else "all defaults"])
    rows.append(["seed", str(fitted.parameters.get("seed", 0))])
    rows += [["calibrated", f"{told} that it has not seen"] for told in calibration.told(fitted.calibration)]
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
            shown = _short(part.brief)
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
    if look.wide is not None and look.wide.id is None:
        return f"row {look.numbers[number]}"
    return style.label(look.groups.labels[number], 32).replace(r"\$", "$")

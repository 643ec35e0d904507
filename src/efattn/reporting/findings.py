"""What a page shows of a model's answers: calibration, the best and the worst predictions, attention, and items."""

from functools import partial
from typing import Any

import numpy as np

from efattn import inference, plots
from efattn.data import Groups
from efattn.errors import EfattnError
from efattn.inference import Evaluation, Fitted
from efattn.inference.attention import weights_of
from efattn.inference.ranking import ranked
from efattn.models import Term
from efattn.reporting.about import group_name
from efattn.reporting.blocks import NONE, Grid, Text, attempted, number, score
from efattn.reporting.look import Look, levels

EXTREMES = 6  # rows that are shown as best, and as worst
EXAMPLES, LONGEST, PLACES = 2, 24, 400  # groups whose attention is shown, their rows, and those of a map
FEW, DRAWN, POOLED = 40, 4, ("mse", "mae", "crps")  # items that are listed, columns drawn; what has a unit
ITEMS, ASKED, BESIDE = 3000, 6, 5  # of a catalogue; items whose company is told; of how many others


def trust(look: Look) -> list[Any]:
    """Means with standard errors, intervals and lists against what came."""
    found = look.evaluation
    if found is None:
        return [Text("No row of this table can be evaluated: there is nothing observed to compare with.", quiet=True)]
    blocks: list[Any] = [Text(found.words), *_of_lists(found)]
    for column in found.pit:
        blocks += _of_column(look, found, column)
    return blocks


def _of_lists(found: Evaluation) -> list[Any]:
    """Of items: how often lists hold the one that came."""
    lists = {(x.k, x.metric): x for x in found.lines if x.part == "all" and isinstance(x.k, int)}
    lengths = list(dict.fromkeys(k for k, _ in lists))
    if not lengths:
        return []
    heads = ("recall", "ndcg", "mrr", "mass", "coverage", "novelty")
    rows = [[str(k), *(_mean(lists[k, name]) for name in heads)] for k in lengths]
    shown = ("length of the list", "recall", "NDCG", "MRR", "mass", "of the catalogue", "novelty")
    of = next(iter(lists.values())).of
    whole = {x.metric: _mean(x) for x in found.lines if x.part == "all" and x.k is None and x.of == of}
    told = f"Log score of the item that came {whole['log_score']}, mean reciprocal rank {whole['mrr']}. {found.trust}"
    return [Grid(shown, rows, 0), Text(told), *attempted(partial(plots.list_mass, found), "lists")]


def _of_column(look: Look, found: Evaluation, column: str) -> list[Any]:
    """Of one value column: means, calibration, and predicted against observed; of columns of a wide table, which have
    units of their own, each by itself."""
    hidden = ("promised", "pit", *(POOLED if look.wide is not None else ()))
    mine = [x for x in found.lines if x.part == "all" and x.of == column and x.metric not in hidden]
    rows = [[_metric(x), _mean(x)] for x in mine if not isinstance(x.k, int)]
    blocks: list[Any] = [Grid((column, "mean ± standard error over groups"), rows, 1), *_by_item(look, found, column)]
    blocks += attempted(partial(found.plot, of=column), f"law-{column}")
    shown: list[Any] = [None]
    if look.wide is not None:
        shown = [one.name for one in look.wide.columns if not one.levels][:DRAWN]
    for item in shown:
        draw = partial(plots.predictions, look.fitted, look.table, column, item=item)
        blocks += attempted(draw, f"predictions-{column}-{item}")
    return blocks


def _by_item(look: Look, found: Evaluation, column: str) -> list[Any]:
    """Of few items, how well each is predicted."""
    frame = found.by_item
    if frame is None or not 1 < len(frame) <= FEW:
        return []
    names = frame.columns[: frame.columns.index("predicted")]
    kinds = {
        "log score": "log_score",
        "root mean squared error": "mse",
        "CRPS": "crps",
        "in 90 % intervals": "inside@0.9",
    }
    rows = []
    for row in frame.iter_rows(named=True):
        name = " ".join(str(row[key]) for key in names)
        told = [row.get(f"{column}_{kind}") for kind in kinds.values()]
        told[1] = None if told[1] is None else told[1] ** 0.5
        if levels(look.wide, name):
            told[1:3] = [None, None]  # of words there is no distance
        rows.append([name, f"{row['predicted']:,}", *(number(x, 3) for x in told)])
    words = f"{column} by item." if look.wide is None else "By column."
    return [Grid(("", "rows", *kinds), rows, 1, words)]


def _metric(line: Any) -> str:
    names = {"mse": "squared error", "mae": "absolute error", "crps": "CRPS", "log_score": "log score"}
    return f"inside its {line.k:.0%} interval" if line.metric == "inside" else names.get(line.metric, line.metric)


def _mean(line: Any) -> str:
    if line.mean is None:
        return NONE
    return number(line.mean) if line.error is None else f"{number(line.mean)} ± {number(line.error, 2)}"


def extremes(look: Look) -> list[Any]:
    """The rows that were foreseen best, and those that came as the greatest surprise."""
    blocks: list[Any] = []
    for name, rows in look.scores.items():
        there = np.flatnonzero(rows.scored)
        if not len(there):
            continue
        order = there[np.argsort(-rows.values[there], kind="stable")]
        shown = order[:EXTREMES], order[::-1][:EXTREMES]
        of_items = look.fitted.members[0][name].of_items
        for mine, words in zip(shown, ("The best foreseen", "The greatest surprises"), strict=True):
            heads, lines = (_of_items if of_items else _of_values)(look, mine, rows.values)
            blocks.append(Grid(heads, lines, 3 if of_items else 2, f"{words}, by log score of {name}."))
    return blocks or [Text("No row of this table can be scored.", quiet=True)]


def _where(look: Look, row: int) -> str:
    return group_name(look, int(look.group[row]))


def _item(look: Look, number: int) -> str:
    name = look.fitted.vocabulary.name(number)
    text = " ".join(map(str, name)) if isinstance(name, tuple) else "unknown" if name is None else str(name)
    return text if len(text) <= 48 else text[:47] + "…"


def _of_values(look: Look, mine: np.ndarray, scores: np.ndarray) -> tuple[list[str], list[list[str]]]:
    names, every = look.fitted.schema.roles.of("value"), look.groups.every
    assert every.value is not None
    value = look.by_row(every.value)
    item = None if every.item is None else look.by_row(every.item)
    heads = [", ".join(look.groups.columns) or "group", "item" if item is not None else "row"]
    heads += [head for name in names for head in (name, "predicted", "90 % interval")] + ["log score"]
    lines = []
    for row in mine:
        line = [_where(look, row), str(row + look.table.first_row) if item is None else _item(look, int(item[row]))]
        words = () if item is None else levels(look.wide, look.fitted.vocabulary.name(int(item[row])))
        if words:
            line += [words[int(value[row, 0])], f"with {np.exp(scores[row]):.1%}", "", score(float(scores[row]))]
            lines.append(line)
            continue
        for c, name in enumerate(names):
            mean, low, high = (float(look.predicted[f"{name}_{kind}"][row]) for kind in ("mean", "lower", "upper"))
            line += [number(float(value[row, c])), number(mean), f"{number(low)} to {number(high)}"]
        lines.append([*line, score(float(scores[row]))])
    return heads, lines


def _of_items(look: Look, mine: np.ndarray, scores: np.ndarray) -> tuple[list[str], list[list[str]]]:
    every = look.groups.every
    assert every.item is not None
    asked = np.isin(every.row, mine)
    parts = look.fitted.parts_of("item", "be ranked")
    found = ranked(look.fitted, parts, look.groups, asked, 1)
    place = {int(every.row[at]): k for k, at in enumerate(found.at)}
    item, heads = look.by_row(every.item), [", ".join(look.groups.columns) or "group", "item", "most probable was"]
    lines = []
    for row in mine:
        k = place[int(row)]
        best = int(found.items[k, 0])
        first = f"{_item(look, best)} ({found.probability[k, 0]:.1%})" if best >= 0 else NONE
        chance = float(np.exp(scores[row]))
        lines.append([_where(look, row), _item(look, int(item[row])), first, f"{chance:.2%}", f"{found.rank[k]:,}"])
    return [*heads, "probability", "rank"], lines


def has_attention(fitted: Fitted) -> bool:
    return any(isinstance(fitted.members[0][name], Term) for name in fitted.names)


def attention(look: Look) -> list[Any]:
    """Of a few groups of a usual size; of places, on a map."""
    lengths, fitted = look.groups.lengths, look.fitted
    suited = np.flatnonzero((lengths > 1) & (lengths <= min(LONGEST, fitted.schema.max_length or LONGEST)))
    words = "Weights say where a network looks, not why."
    words += " These are the first member's." if len(fitted.members) > 1 else ""
    words += " The simple models beside it look elsewhere." if any(fitted.companions.values()) else ""
    blocks: list[Any] = [Text(words, quiet=True)]
    usual = float(np.median(lengths))
    shown = suited[np.argsort(np.abs(lengths[suited] - min(usual, LONGEST / 2)), kind="stable")][:EXAMPLES]
    inside = fitted.schema.standardise(look.groups)
    for k in shown:
        blocks += attempted(partial(_heatmap, look, inside.subset(np.array([k])), int(k)), f"attention-{k}")
    if _placed(look):
        k = int(np.argmin(np.abs(lengths - min(usual, PLACES))))
        rows = look.table.take(np.sort(look.groups.subset(np.array([k])).rows))
        title = f"Who looks at whom: {group_name(look, k)}".replace("$", r"\$")
        if 1 < lengths[k] <= PLACES:
            blocks += attempted(partial(plots.attention_map, fitted, rows, title=title), "attention-map")
    return blocks if len(blocks) > 1 else [Text("No group of this table is small enough for a picture.", quiet=True)]


def _heatmap(look: Look, group: Groups, number_: int) -> Any:
    title = f"What each prediction looks at: {group_name(look, number_)}".replace("$", r"\$")
    return plots.attention_heatmap(weights_of(look.fitted.member(0), None, group), title=title)


def _placed(look: Look) -> bool:
    from efattn.plots.rows import degrees

    return degrees(look.fitted, look.groups) is not None


def residuals(look: Look) -> list[Any]:
    """On a map, where there are places."""
    if "value" not in look.fitted.terms or look.groups.every.value is None or not _placed(look):
        return []
    names = look.fitted.schema.roles.of("value")
    drawn = [partial(plots.residual_map, look.fitted, look.table, name) for name in names]
    return [block for k, draw in enumerate(drawn) for block in attempted(draw, f"residuals-{k}")]


def gaps(look: Look) -> list[Any]:
    """What is missing, and what is put there."""
    value = look.groups.every.value if "value" in look.fitted.terms else None
    gone = np.zeros(0) if value is None else np.isnan(value).mean(0)
    some = [name for name, share in zip(look.fitted.schema.roles.of("value"), gone, strict=False) if 0 < share < 1]
    drawn = [partial(plots.missing, look.fitted, look.table, name) for name in some]
    return [block for k, draw in enumerate(drawn) for block in attempted(draw, f"missing-{k}")]


def items(fitted: Fitted, look: Look | None) -> list[Any]:
    """A map of items, and the company that some of them keep."""
    blocks: list[Any] = []
    try:
        blocks += _map(fitted)
        if 2 < len(fitted.vocabulary) <= ITEMS:
            numbers = np.arange(min(ASKED, len(fitted.vocabulary)))
            if look is not None and look.groups.item is not None:
                known = look.groups.item[look.groups.item < len(fitted.vocabulary)]
                numbers = np.argsort(-np.bincount(known, minlength=len(fitted.vocabulary)), kind="stable")[:ASKED]
            rows = [_company(fitted, int(k)) for k in numbers]
            words = "What goes best with each, by what the model predicts."
            blocks.append(Grid(("item", "goes with"), rows, 2, words))
    except EfattnError as error:
        blocks.append(Text(str(error), quiet=True))
    return blocks


def _map(fitted: Fitted) -> list[Any]:
    from efattn.inference.embeddings import plane

    try:
        plane(fitted)
    except EfattnError:  # a simple model, or one that knows its items by their attributes alone
        return []
    return attempted(lambda: plots.item_map(fitted), "items")


def _company(fitted: Fitted, number_: int) -> list[str]:
    name = fitted.vocabulary.name(number_)
    best = inference.similar(fitted, name, BESIDE, kind="polars")
    words = [" ".join(map(str, row[:-1])) + f" ({row[-1]:.2f})" for row in best.iter_rows()]
    return [" ".join(map(str, name)) if isinstance(name, tuple) else str(name), ", ".join(words)]

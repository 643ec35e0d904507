"""How probable the rows of a table are: under the model, under each part of it alone, and under what is easily had."""

import warnings
from typing import Any

import numpy as np

from efattn.errors import EfattnError, EfattnWarning
from efattn.inference.evaluation import per_row
from efattn.inference.score import Rows, term_scores
from efattn.network import without_orders
from efattn.reporting.blocks import Grid, Text, score
from efattn.reporting.look import Look

OWN = "each item's own distribution, fitted to these very rows"
POOLED = "one distribution of all, fitted to these very rows"


def tables(look: Look) -> list[Any]:
    """A table a term: mean log scores, and paired differences with standard errors over groups."""
    blocks: list[Any] = []
    for name, mine in look.scores.items():
        if not mine.scored.any():
            blocks.append(Text(f"No row of {name} can be scored.", quiet=True))
            continue
        others = look.alone(name) | _marginal(look, name)
        names, scored = [look.fitted.estimator, *others], [mine, *others.values()]
        rows = [
            [who, score(_mean(look, one)), "" if one is mine else score(*_difference(look, one, mine))]
            for who, one in zip(names, scored, strict=True)
        ]
        means = [-np.inf if (mean := _mean(look, one)) is None else mean for one in scored]
        best = int(np.argmax(means))
        words = f"{name}: mean log score of {int(mine.scored.sum()):,} rows, in nats; the higher, the better. "
        words += "Differences to the model are paired, with standard errors over groups."
        heads = ("", "this table", f"difference to {look.fitted.estimator}")
        blocks.append(Grid(heads, rows, 1, words, best))
    return blocks


def held_out(look: Any) -> list[Any]:
    """What the fit kept of groups that it had held out. look: of a Fitted, or a look at a table."""
    fitted, blocks = getattr(look, "fitted", look), list[Any]()
    for name, scores in fitted.held_out.items():
        words = {"together": fitted.estimator, "network": "the networks alone, each without what it predicts here"}
        order = sorted(scores, key=lambda kind: (kind != "together", -scores[kind]))
        rows = [[words.get(kind, f"{kind} alone"), score(scores[kind])] for kind in order]
        best = max(range(len(order)), key=lambda k: scores[order[k]])
        told = f"{name}: mean log score of groups that the fit held out, which chose the shares of the mixture."
        blocks.append(Grid(("", "held out in the fit"), rows, 1, told, best))
    return blocks


def _mean(look: Look, rows: Rows) -> float | None:
    return _per_row(look, rows.values, rows.scored)[0]


def _difference(look: Look, one: Rows, other: Rows) -> tuple[float | None, float | None]:
    return _per_row(look, one.values - other.values, one.scored & other.scored)


def _per_row(look: Look, values: np.ndarray, there: np.ndarray) -> tuple[float | None, float | None]:
    weight = look.weight[there]
    sums = np.bincount(look.group[there], weight * values[there], len(look.groups))
    return per_row(sums, np.bincount(look.group[there], weight, len(look.groups)))


def _marginal(look: Look, name: str) -> dict[str, Rows]:
    """Fitted to the table itself, which favours it; nothing where there is no such model of the columns."""
    from efattn import simple
    from efattn.estimators import SimpleModel

    fitted = look.fitted
    of_items, roles = fitted.members[0][name].of_items, fitted.schema.roles
    family = fitted.family.parts[0] if not of_items and fitted.family is not None else "auto"
    same: dict[str, Any] = {
        "context": without_orders(fitted.context),
        "support": fitted.support if of_items else "auto",
    }
    model = SimpleModel(simple.Popularity() if of_items else simple.ItemMean(), family=family, **same)
    columns = {
        role: getattr(roles, role) for role in ("group", "item", "value", "order", "weight", "target", "missing")
    }
    if of_items:
        del columns["value"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EfattnWarning)  # what there is to say of the table is said once
            model.fit(look.table.native, **columns, validation=None, progress=False)
        mine = model.fitted_
        groups = mine.schema.encode(look.table)
        found = term_scores(mine, mine.names[0], groups, len(look.table))
    except EfattnError:
        return {}
    return {OWN if roles.item else POOLED: found}

"""One model, fitted to the training groups of one fold and scored on the others: here, or in a process of its own.

    task -> record: seconds, and by term and test group the sum of log p of its rows and how many they are

A process is a fresh interpreter with one thread (`training/processes.py`), so that a script needs no guard; what comes
back from it is JSON.
"""

import contextlib
import json
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from efattn.data import Table
from efattn.errors import FAILURES, DataError, EfattnError
from efattn.estimators.base import GroupEstimator
from efattn.inference import Fitted
from efattn.inference.score import Rows, row_scores, row_weights
from efattn.inference.tables import Asked
from efattn.training import processes

Record = dict[str, Any]
PROGRAM = "from efattn.comparing.runs import work; work()"
DIGITS = 8


@final
@dataclass(frozen=True)
class Task:
    """train, test: frames; number: of the group of each test row; look: whether to find out what the model does not
    see."""

    model: str
    fold: int
    estimator: GroupEstimator
    validation: float | str | None
    roles: Mapping[str, Any]
    train: Any
    test: Any
    number: np.ndarray
    look: bool = False


def run(task: Task) -> Record:
    """error: in the place of scores, where it could not be fitted or asked."""
    record: Record = {"model": task.model, "fold": task.fold, "options": told(task.estimator)}
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task.estimator.fit(task.train, **task.roles, validation=task.validation, progress=False)
            if task.estimator.interrupted_:
                raise KeyboardInterrupt
            record["seconds"] = round(time.perf_counter() - start, 2)
            return record | _scored(task, task.estimator.fitted_)
    except FAILURES as error:
        words = str(error) if isinstance(error, EfattnError) else f"{type(error).__name__}: {error}"
        return record | {"seconds": round(time.perf_counter() - start, 2), "error": words}


def told(estimator: GroupEstimator) -> str:
    """Its options in one line, by which a finished run is known again; the family is another for every fold."""
    return repr({name: x for name, x in estimator.get_params(deep=False).items() if name != "family"})


def elsewhere(tasks: Sequence[Task]) -> list[Record]:
    """The same, one after the other, in a process of its own with one thread."""
    code, written = processes.answer(PROGRAM, list(tasks))
    if not code:
        return json.loads(written)
    words = f"Its process ended with code {code}: perhaps there is not enough memory."
    return [
        {"model": one.model, "fold": one.fold, "options": told(one.estimator), "seconds": 0.0, "error": words}
        for one in tasks
    ]


def work() -> None:
    """What such a process does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    tasks, channel = processes.asked()
    channel.write(json.dumps([run(task) for task in tasks]).encode())
    channel.flush()


def _scored(task: Task, fitted: Fitted) -> Record:
    table = Table.read(task.test)
    asked, scores = _asked(fitted, table)
    weight = row_weights(asked)
    record: Record = {"terms": {name: _by_group(rows, weight, task.number) for name, rows in scores.items()}}
    if fitted.family is not None:
        record["family"] = repr(fitted.family)
    if fitted.companions:
        record["shares"] = {name: _shares(fitted, name) for name in fitted.names}
        alone = row_scores(fitted.networks_alone(), asked.groups, len(table))
        record["alone"] = {name: _by_group(rows, weight, task.number) for name, rows in alone.items()}
    if task.look:
        record["lacks"] = _lacks(fitted, table, scores)
    return record


def _asked(fitted: Fitted, table: Table) -> tuple[Asked, dict[str, Rows]]:
    groups = fitted.schema.encode(table, need=("value",) if "value" in fitted.terms else ())
    fitted.check(groups)
    return Asked(table, groups), row_scores(fitted, groups, len(table))


def _by_group(rows: Rows, weight: np.ndarray, number: np.ndarray) -> Record:
    """Of the groups with a scored row."""
    kept = rows.scored
    which, place = np.unique(number[kept], return_inverse=True)
    weights = np.bincount(place, weight[kept], len(which))
    sums = np.bincount(place, (rows.values * weight)[kept], len(which))
    return {
        "group": which.tolist(),
        "rows": [int(x) if x == int(x) else float(f"{x:.{DIGITS}g}") for x in weights],
        "sum": [float(f"{x:.{DIGITS}g}") for x in sums],
    }


def _shares(fitted: Fitted, name: str) -> dict[str, float]:
    """Of the mixture: the network's, or that of a pool with it, and its companions'."""
    companions = {one.recipe.label: round(one.share, 4) for one in fitted.companions.get(name, ())}
    who = "pool" if name in fitted.powers and companions else "network"
    return {who: round(1 - sum(companions.values()), 4), **companions}


def _lacks(fitted: Fitted, table: Table, scores: Mapping[str, Rows]) -> list[str]:
    """Roles that the model does not see: their columns are shuffled in the test rows, and no score changes."""
    roles = fitted.schema.roles
    asked = ["attributes", "exposure", "noise"]
    asked += ["order"] if fitted.context != "past" else []
    asked += ["item"] if fitted.terms == ("value",) else []
    taken = [
        name for role in ("group", "item", "value", "order", "time", "weight", "target") for name in roles.of(role)
    ]
    lacks = []
    for role in asked:
        mine = [name for name in roles.of(role) if taken.count(name) == (role in ("order", "item"))]
        if mine and not _changes(fitted, table, mine, scores):
            lacks.append(role)
    return lacks


def _changes(fitted: Fitted, table: Table, columns: list[str], scores: Mapping[str, Rows]) -> bool:
    turn = np.random.default_rng(0).permutation(len(table))
    shuffled = {name: table.column(name)[turn] for name in columns}
    with contextlib.suppress(DataError):
        others = _asked(fitted, Table.read(table.with_columns(shuffled)))[1]
        return not all(
            np.allclose(rows.values[rows.scored], others[name].values[rows.scored], rtol=1e-6, atol=1e-6)
            for name, rows in scores.items()
        )
    return True

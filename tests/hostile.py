"""The law of hostile tables: an error that says what is wrong, or a model that answers, about this table and another.

python tests/hostile.py 1000 2000      runs these seeds and prints what broke
"""

import math
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hostile_spices import Case
from hostile_tables import as_polars, case

import efattn
from efattn.errors import EfattnError, EfattnWarning


def holds(made: Case, folder: Path) -> str:
    """ "answered", or the text of the error; an AssertionError, or any other error, where the law is broken."""
    table = made.table
    try:
        model = made.model.fit(table, **made.roles, **made.options, progress=False)
    except EfattnError as error:
        _is_clear(error, made)
        return str(error)
    assert isinstance(model.summary(), str)
    score = _answers(made, model, table)
    _answers(made, model, made.other)
    path = folder / "x.efattn"
    model.save(path)
    again = efattn.load(path)
    assert again.summary() == model.summary()
    assert _answer(made, lambda: again.score(table)) == score, "a loaded model scores otherwise"
    if made.draw.random() < 0.3 and _answer(made, lambda: again.update(made.other, progress=False)) is not None:
        _answers(made, again, made.other)
    return "answered"


def _answers(made: Case, model: Any, table: Any) -> float | None:
    """The score; every verb is asked."""
    score = _answer(made, lambda: model.score(table))
    assert score is None or math.isfinite(score), f"score {score}"
    scored = _answer(made, lambda: model.log_likelihood(table))
    if scored is not None:
        _keeps(table, scored)
        _nulls_are_unscored(model, table, as_polars(scored))
    predicted = _answer(made, lambda: model.predict(table))
    if predicted is not None:
        _keeps(table, predicted)
        _is_finite(model, table, as_polars(predicted))
    if "item" in model.terms_:
        for histories in (table, None):
            best = _answer(made, lambda histories=histories: model.recommend(histories, k=3))
            if best is not None:
                _are_probabilities(model, as_polars(best))
    told = _answer(made, lambda: model.evaluate(table, 3))
    assert told is None or all(x.mean is None or math.isfinite(x.mean) for x in told.lines), told.lines
    weights = _answer(made, lambda: model.attention(table))
    assert weights is None or np.isfinite(np.asarray(weights.weights)).all()
    return score


def _answer(made: Case, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except EfattnError as error:
        _is_clear(error, made)
        return None


def _is_clear(error: EfattnError, made: Case) -> None:
    """It says where, and nothing that is private."""
    text = str(error)
    assert not set("\x02\x03") & set(text), f"private marks in {text!r}"
    assert len(text) > 20, text
    about = error.column is not None or error.option is not None or any(name and name in text for name in made.columns)
    assert about or "no rows" in text or "No row" in text or "Nothing to model" in text, f"about nothing: {text}"


def _keeps(table: Any, answer: Any) -> None:
    """All rows, in their order, and all of the user's columns as they were."""
    assert type(answer) is type(table)
    before, after = as_polars(table), as_polars(answer)
    assert after.columns[: len(before.columns)] == before.columns, after.columns
    assert after.height == before.height
    for name in before.columns:
        assert after[name].equals(before[name], check_dtypes=True, null_equal=True), f"column {name!r} changed"


def _nulls_are_unscored(model: Any, table: Any, answer: pl.DataFrame) -> None:
    rows = model.schema_.encode(table).every
    counted = np.ones(len(rows.row), bool) if rows.weight is None else rows.weight > 0
    counted &= True if rows.target is None else rows.target.astype(bool)
    new = answer.columns[len(as_polars(table).columns) :]
    assert len(new) == len(model.fitted_.names)
    for name, column in zip(model.fitted_.names, new, strict=True):
        term = model.model_[name]
        if term.of_items:
            known = rows.item != model.schema_.vocabulary.unknown
        else:
            seen = ~np.isnan(rows.value)
            known = np.any([seen[:, where].all(1) for _, _, where in term.family.slices()], 0)
        expected = np.zeros(len(rows.row), bool)
        expected[rows.row] = known & counted
        found = answer[column]
        assert (found.is_not_null().to_numpy() == expected).all(), f"{name!r}: other rows are scored"
        assert found.drop_nulls().is_finite().all(), f"{name!r}: {found.drop_nulls().to_list()}"


def _is_finite(model: Any, table: Any, answer: pl.DataFrame) -> None:
    new = answer.columns[len(as_polars(table).columns) :]
    assert new
    for name in new:
        column = answer[name]
        if model.terms_ == ("item",) and not column.dtype.is_float():
            continue
        assert column.null_count() == 0, f"{name!r} has nulls"
        if column.dtype.is_numeric():
            assert column.is_finite().all(), f"{name!r}: {column.to_list()}"


def _are_probabilities(model: Any, best: pl.DataFrame) -> None:
    p = best[best.columns[-1]]
    assert p.is_between(0, 1 + 1e-5).all(), p.to_list()
    rank = best[best.columns[-2 - len(model.schema_.roles.of("item"))]].to_numpy()
    totals = np.bincount(np.cumsum(rank == 1), p.to_numpy()) if len(p) else np.zeros(1)
    assert totals.max() <= 1 + 1e-5, totals


def main(first: int, last: int) -> None:
    """Every seed from first up to last; what breaks, by its last line."""
    told: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            try:
                made = case(seed)
                said = holds(made, Path(folder))
            except Exception as error:
                said = f"BROKEN {type(error).__name__}"
                where = traceback.format_exc().strip().splitlines()
                sys.stdout.write(
                    f"---- {seed} {made.spices} {made.model!r} {made.roles}\n" + "\n".join(where[-9:]) + "\n"
                )
            told[said[:40]] = told.get(said[:40], 0) + 1
    for said, count in sorted(told.items(), key=lambda pair: -pair[1]):
        sys.stdout.write(f"{count:6d} {said!r}\n")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", EfattnWarning)
    main(*map(int, sys.argv[1:]))

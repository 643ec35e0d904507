"""A fitted model as the server asks it: every verb one call into `efattn.inference`, as Python and the shell make it.

Answers are JSON texts: rows as the shell's --json writes them, and what there is to tell about the table.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

from efattn import inference
from efattn.data import Table
from efattn.errors import DataError, EfattnError, Note
from efattn.explorer import requests
from efattn.explorer.desk import Question
from efattn.explorer.limits import Limits, Refused
from efattn.explorer.tables import check_count, item_of, longest_group, rows_in, table_of
from efattn.inference import frames
from efattn.inference.together import Asking, predict_together, recommend_together


@final
class Served:
    """fitted: the model; name: how requests call it."""

    def __init__(self, name: str, fitted: inference.Fitted, limits: Limits) -> None:
        self.name, self.fitted, self.limits = name, replace(fitted, frames="polars"), limits
        self.verbs: dict[str, tuple[type[requests.Body], Callable[[Any], Question]]] = {
            "predict": (requests.Predict, self.predict),
            "distributions": (requests.Distributions, self.distributions),
            "recommend": (requests.Recommend, self.recommend),
            "similar": (requests.Similar, self.similar),
            "attention": (requests.Attention, self.attention),
            "impute": (requests.Impute, self.impute),
            "sample": (requests.Sample, self.sample),
            "joint": (requests.Joint, self.joint),
            "forecast": (requests.Forecast, self.forecast),
            "where-next": (requests.WhereNext, self.where_next),
            "explain": (requests.Explain, self.explain),
            "score": (requests.Score, self.score),
            "evaluate": (requests.Evaluate, self.evaluate),
        }

    def predict(self, body: requests.Predict) -> Question:
        options: dict[str, Any] = {"interval": body.interval, "quantiles": tuple(body.quantiles)}

        def ask(table: Table, tell: Any) -> Any:
            (answer,) = inference.predict(self.fitted, [table], **options, member=body.member, tell=tell)
            return answer

        def together(several: Sequence[Any]) -> Sequence[Any]:
            return self._shared(several, functools.partial(predict_together, **options))

        key = ("predict", *options.values()) if body.member is None and self.fitted.wide is None else None
        return Question(*self._rows(body.table, ask), key, body.table, together)

    def recommend(self, body: requests.Recommend) -> Question:
        given = requests.options(body)
        plain = all(given[name] is None for name in ("at", "attributes", "among", "exclude", "member"))
        plain = plain and not (body.at_least or body.diversity or body.why)
        key = ("recommend", body.k) if plain and body.table is not None else None

        def ask(table: Table | None, tell: Any) -> Any:
            for name in ("among", "exclude"):
                if isinstance(given[name], list):
                    given[name] = [item_of(one, self.fitted) for one in given[name]]
            tables = None if table is None else [table]
            (answer,) = inference.recommend(self.fitted, tables, **given, tell=tell)
            return answer

        def together(several: Sequence[Any]) -> Sequence[Any]:
            return self._shared(several, functools.partial(recommend_together, k=body.k))

        return Question(*self._rows(body.table, ask), key, body.table, together)

    def distributions(self, body: requests.Distributions) -> Question:
        events = [one.model_dump(exclude_none=True) for one in body.events]

        def ask(table: Table, tell: Any) -> Any:
            (laws,) = inference.predict_distribution(self.fitted, [table], member=body.member, tell=tell)
            several = {laws.column: laws} if isinstance(laws, inference.Distribution) else laws
            return {"columns": {name: _law(law, body.quantiles, events) for name, law in several.items()}}

        return self._data(body.table, ask)

    def similar(self, body: requests.Similar) -> Question:
        def ask(table: None, tell: Any) -> Any:
            item = item_of(body.item, self.fitted)
            return inference.similar(self.fitted, item, body.k, member=body.member, kind="polars")

        return Question(*self._rows(None, ask))

    def attention(self, body: requests.Attention) -> Question:
        def ask(table: Table, tell: Any) -> Any:
            self._check_pairs(len(table))
            found = inference.attention(self.fitted, table, body.term, member=body.member, tell=tell)
            names = {"targets": [_label(x) for x in found.targets], "contexts": [_label(x) for x in found.contexts]}
            answer = {**names, "lags": found.lags, "weights": found.mean().tolist()}
            return answer | ({"layers": found.weights.tolist()} if body.layers else {})

        return self._data(body.table, ask)

    def impute(self, body: requests.Impute) -> Question:
        how = requests.options(body)
        check_count(max(body.draws, 1) * rows_in(body.table), self.limits.rows)

        def ask(table: Table, tell: Any) -> Any:
            (answer,) = inference.impute(self.fitted, [table], **how, tell=tell)
            return frames.numbered(answer) if body.draws else answer

        return Question(*self._rows(body.table, ask))

    def sample(self, body: requests.Sample) -> Question:
        given: dict[str, Any] = {"groups": body.groups, "length": body.length, "seed": body.seed, "member": body.member}
        length = body.length or (1 if body.table is not None else self.fitted.longest)
        check_count((body.groups or 1) * max(length, rows_in(body.table)), self.limits.rows)

        def ask(table: Table | None, tell: Any) -> Any:
            return inference.sample(self.fitted, given=table, **given, tell=tell)

        return Question(*self._rows(body.table, ask))

    def joint(self, body: requests.Joint) -> Question:
        how = requests.options(body)
        self._check_passes(body.orders * rows_in(body.table))

        def ask(table: Table, tell: Any) -> Any:
            (answer,) = inference.joint_log_density(self.fitted, [table], **how, tell=tell)
            return answer

        return Question(*self._rows(body.table, ask))

    def forecast(self, body: requests.Forecast) -> Question:
        how = requests.options(body)
        check_count(body.draws * body.steps * rows_in(body.table), self.limits.rows)

        def ask(table: Table, tell: Any) -> Any:
            return inference.forecast(self.fitted, table, **how, tell=tell)

        return Question(*self._rows(body.table, ask))

    def where_next(self, body: requests.WhereNext) -> Question:
        how = {name: x for name, x in requests.options(body).items() if name != "candidates"}
        cells = 1 if self.fitted.wide is None else len(self.fitted.wide)
        asked = check_count(rows_in(body.candidates or body.table), self.limits.rows) * cells
        rows = rows_in(body.table) * cells + (asked if body.candidates else 0)
        self._check_passes(body.draws * asked * rows)  # all rows once more for each candidate

        def ask(table: Table, tell: Any) -> Any:
            candidates = self._table(body.candidates) if body.candidates else None
            return inference.where_next(self.fitted, table, candidates, **how, tell=tell)

        return Question(*self._rows(body.table, ask))

    def explain(self, body: requests.Explain) -> Question:
        how = requests.options(body)

        def ask(table: Table, tell: Any) -> Any:
            self._check_pairs(len(table), 8)  # the group once more for each row that is left out
            item = None if body.item is None else item_of(body.item, self.fitted)
            return inference.explain(self.fitted, table, **{**how, "item": item}, tell=tell)

        return Question(*self._rows(body.table, ask))

    def score(self, body: requests.Score) -> Question:
        def ask(table: Table, tell: Any) -> Any:
            return inference.score(self.fitted, [table], member=body.member, tell=tell)

        return self._data(body.table, ask)

    def evaluate(self, body: requests.Evaluate) -> Question:
        how = requests.options(body)

        def ask(table: Table, tell: Any) -> Any:
            return inference.evaluate(self.fitted, [table], **how, tell=tell).to_json()

        return self._data(body.table, ask)

    # ---- inside

    def _rows(self, given: Any, ask: Callable[[Any, Any], Any]) -> tuple[Callable[[], str], int]:
        """A question whose answer is a frame, and the rows of its table."""
        rows = check_count(rows_in(given), self.limits.rows)

        def told() -> str:
            notes = list[Note]()
            return _frame(ask(None if given is None else self._table(given), notes.append), notes)

        return told, rows

    def _data(self, given: Any, ask: Callable[[Table, Any], dict[str, Any]]) -> Question:
        """A question whose answer is an object."""
        rows = check_count(rows_in(given), self.limits.rows)

        def told() -> str:
            notes = list[Note]()
            return text(ask(self._table(given), notes.append) | {"notes": _notes(notes)})

        return Question(told, rows)

    def _shared(self, several: Sequence[Any], ask: Callable[..., Sequence[Any]]) -> Sequence[Any]:
        """One engine call for the tables of several bodies."""
        answers, asking, notes = list[Any]([None] * len(several)), dict[int, Asking](), dict[int, list[Note]]()
        for number, given in enumerate(several):
            try:
                notes[number] = []
                asking[number] = Asking(self._table(given), notes[number].append)
            except (EfattnError, Refused) as error:
                answers[number] = error
        for number, answer in zip(asking, ask(self.fitted, list(asking.values())), strict=True):
            answers[number] = answer if isinstance(answer, Exception) else _frame(answer, notes[number])
        return answers

    def _table(self, given: Any) -> Table:
        """Of a body, with no group that would take too long."""
        table, fitted = table_of(given, self.fitted), self.fitted
        names = fitted.schema.roles.of("group")
        if fitted.wide is None and fitted.schema.max_length is None and all(name in table.names for name in names):
            most, rows = max(self.limits.group, fitted.longest), longest_group(table, names)
            if rows > most:
                said = f"A group has at most {most:,} rows here; found {rows:,}. Send fewer of them."
                raise Refused(413, "too many rows", said)
        return table

    def _check_passes(self, rows: int) -> None:
        """A refusal where so many rows, each counted as often as it is gone through, would take too long."""
        most = max(self.limits.cells // 10, 1)
        if rows > most:
            said = f"Rows, each counted as often as it is gone through, are at most {most:,} here; found {rows:,}."
            raise Refused(413, "too many rows", f"{said} Ask in parts, or for fewer orders or draws.")

    def _check_pairs(self, rows: int, each: int = 1) -> None:
        """A refusal where there is something to compute or send, so many times, for every pair of rows."""
        most = max(int(math.sqrt(self.limits.cells / each)), 1)
        if rows > most:
            said = f"This is told of groups of at most {most:,} rows here; found {rows:,}. Send fewer of them."
            raise Refused(413, "too many rows", said)


def _law(law: inference.Distribution, quantiles: Sequence[float], events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one column, lists in the order of the rows."""
    for one in events:
        if len(one) != 1:
            raise DataError("An event has one of above, below and between: [low, high].", option="events")
    return {
        "mean": law.mean.tolist(),
        "sd": law.sd.tolist(),
        "quantiles": {f"{q:g}": law.quantiles(float(q)).tolist() for q in quantiles},
        "events": [{**one, "probability": law.probability(**one).tolist()} for one in events],
    }


def _label(x: Any) -> Any:
    return (
        [_label(key) for key in x] if isinstance(x, tuple) else x if x is None or isinstance(x, str | int) else str(x)
    )


def _notes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [note.to_json() | {"text": str(note)} for note in notes]


def _frame(frame: Any, notes: Sequence[Note]) -> str:
    return f'{{"rows": {frame.write_json()}, "notes": {text(_notes(notes))}}}'


def text(answer: Any) -> str:
    """JSON has no infinity: it is the text "inf" or "-inf"; what is not a number is null."""
    return json.dumps(strict(answer), ensure_ascii=True, default=str, allow_nan=False)


def strict(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: strict(x) for key, x in answer.items()}
    if isinstance(answer, list | tuple):
        return [strict(x) for x in answer]
    if isinstance(answer, float) and not math.isfinite(answer):
        return None if math.isnan(answer) else str(float(answer))
    return answer

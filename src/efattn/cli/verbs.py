"""What a fitted model is asked: score, predict, recommend, similar, attention, explain, summary."""

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli import output as out
from efattn.cli.messages import in_words, note, say, tell
from efattn.cli.names import flag
from efattn.cli.output import Answer
from efattn.errors import DataError

K = Annotated[int, typer.Option(flag("k"), "-k", help="How many.")]
NARROW, MOST = 8, 5  # letters of a context that are enough to know it by; contexts that are named


def add_to(app: typer.Typer) -> None:
    for verb, *examples in (
        (score, "efattn score m.efattn test.csv", "efattn score m.efattn test.csv --json"),
        (
            predict,
            "efattn predict m.efattn test.csv -o predicted.csv",
            "efattn predict m.efattn test.csv --quantiles 0.1 0.5 0.9",
            "efattn predict m.efattn - < test.csv | head",
        ),
        (recommend, "efattn recommend m.efattn histories.csv -k 5", "efattn recommend m.efattn --among in-stock.csv"),
        (
            similar,
            'efattn similar m.efattn "Organic Avocado" -k 3',
            "efattn similar weather.efattn Boston Massachusetts",
        ),
        (
            attention,
            "efattn attention m.efattn ratings.csv --group u3",
            "efattn attention m.efattn one.csv -o weights.csv",
        ),
        (
            explain,
            "efattn explain m.efattn ratings.csv --row 17",
            "efattn explain m.efattn history.csv --item Alien",
        ),
        (summary, "efattn summary m.efattn"),
    ):
        arguments.add(app, verb, *examples)


@arguments.spelled_out
def score(
    model: arguments.Model,
    table: arguments.Source,
    member: arguments.Member = None,
    json: arguments.Json = False,
    piece_size: arguments.PieceSize = arguments.PIECE,
    *,
    layout: dict[str, Any],
) -> None:
    """The log score of a table, in nats per scored row.

    Each row is scored from its context. From the past that is the log-likelihood of the table; from the others of its
    group it is a leave-one-out log score, which compares models and is no likelihood."""
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Scoring")
    scores = inference.score(fitted, pieces, member=member, tell=note)
    if json:
        out.print_json(scores)
        return
    what = "Mean log-likelihood" if scores["kind"] == "log-likelihood" else "Mean leave-one-out log score"
    tell(f"{what} {scores['mean_log_likelihood']:.6f} nats per scored row")
    for name, mean in scores["terms"].items():
        tell(f"  {name}: " + ("nothing to score" if mean is None else f"{mean:.6f} per target"))
    unknown = f", {scores['unknown']:,} with an unknown item" if scores["unknown"] else ""
    tell(f"{scores['scored']:,} of {scores['observations']:,} rows scored{unknown}.")


@arguments.spelled_out
def predict(
    model: arguments.Model,
    table: arguments.Source,
    interval: arguments.Interval = 0.9,
    quantiles: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P P ...", help="Columns _q10, _q50, ... besides, as --quantiles 0.1 0.5 0.9.", show_default=False
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN,...", help="Value columns of the row itself that are known.", show_default=False),
    ] = None,
    member: arguments.Member = None,
    *,
    answer: Answer,
    piece_size: arguments.PieceSize = arguments.PIECE,
    layout: dict[str, Any],
) -> None:
    """The rows of a table with what is expected of each value beside them.

    <value>_mean, _sd, _lower and _upper, each from its context, never from itself; to standard output as CSV, or to a
    file.

    A table larger than --piece-size, a folder of files too, is read in pieces of whole groups, unless the model sees
    lags; where groups are scattered, they are brought together on disk first."""
    answer.check(table, model)
    levels = arguments.probabilities("quantiles", quantiles)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    known = None if given is None else [name.strip() for word in given for name in word.split(",")]
    pieces = tables.Pieces(fitted, table, layout, piece_size, "Predicting", answer.check_columns)
    told = inference.predict(fitted, pieces, interval, quantiles=levels, given=known, member=member, tell=note)
    answer.give(pieces.in_order(told))


@arguments.spelled_out
def recommend(
    model: arguments.Model,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Histories; without, an empty one.", show_default=False)
    ] = None,
    k: K = 10,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When that row comes, where the model looks at it: a time, or a column of the table.",
            show_default=False,
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ENTRY",
            help="An attribute of that row; repeat for several. By default those of the last row.",
            show_default=False,
        ),
    ] = None,
    among: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ITEM",
            help="Give only this item, those of a table with the items' columns, or COLUMN=LEVEL of the item "
            "features; repeat for several.",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ITEM", help="Never give this item, those of a table, or COLUMN=LEVEL.", show_default=False
        ),
    ] = None,
    at_least: Annotated[float, typer.Option(min=0, max=1, help="Only what is so probable.")] = 0.0,
    diversity: Annotated[float, typer.Option(min=0, max=1, help="How unlike each other they are to be.")] = 0.0,
    why: Annotated[int, typer.Option(min=0, help="Name so many rows of the history that carried each.")] = 0,
    member: arguments.Member = None,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """The most probable further items of each group.

    The next one (context past) or a missing one (others); without a table, the first one."""
    answer.check(table, model)
    fitted = tables.load(model) if table is None else tables.load_for(model, table, layout)

    from efattn import inference

    histories = None if table is None else [tables.read(table, layout)]
    own = arguments.entries(attributes)
    which: dict[str, Any] = {"among": _items(fitted, among), "exclude": _items(fitted, exclude), "at_least": at_least}
    which |= {"diversity": diversity, "why": why}
    rows = inference.recommend(fitted, histories, k, at=at, attributes=own, **which, member=member, tell=note)
    answer.give(rows, table=True)


@arguments.spelled_out
def similar(
    model: arguments.Model,
    item: Annotated[
        list[str],
        typer.Argument(metavar="ITEM", help="Its name; of several columns, one word each.", show_default=False),
    ],
    k: K = 10,
    member: arguments.Member = None,
    *,
    answer: Answer,
) -> None:
    """The items that go best with one, and how well."""
    answer.check(model)
    fitted = tables.load(model)

    from efattn import inference

    rows = inference.similar(fitted, _key(fitted, item), k, member=member, kind="polars")
    answer.give([rows], table=True)


@arguments.spelled_out
def attention(
    model: arguments.Model,
    table: arguments.Source,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Which group, where there are several; repeat for several columns.", show_default=False
        ),
    ] = None,
    term: Annotated[str | None, typer.Option(help="Which term; the last unless said.", show_default=False)] = None,
    member: arguments.OneMember = 0,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """What each row of one group looks at.

    The mean over layers and heads, in percent; with --json or -o, every layer and head in long form: layer, head,
    target, context, lag, weight."""
    answer.check(table, model)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    def chosen(groups: Any) -> Any:
        return _numbers(groups, group)

    weights = inference.attention(fitted, tables.read(table, layout), term, member=member, choose=chosen, tell=note)
    if answer.json or answer.file is not None:
        import polars as pl

        long = weights.columns()
        long |= {name: [_label(x) for x in long[name]] for name in ("target", "context")}
        answer.give([pl.DataFrame(long)])
    else:
        _matrix(weights)


@arguments.spelled_out
def explain(
    model: arguments.Model,
    table: arguments.Source,
    row: Annotated[
        int | None, typer.Option(help="Which row is explained: its number, from 0.", show_default=False)
    ] = None,
    item: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An item that recommend gives, for the group of that row, or the one there is; repeat for several "
            "columns. Of a wide table, the column whose cell is explained.",
            show_default=False,
        ),
    ] = None,
    term: Annotated[str | None, typer.Option(help="value, or item; value unless said.", show_default=False)] = None,
    member: arguments.Member = None,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """Which rows of its context carried the prediction of one row.

    A line for each, the largest change first: how much it was attended to, and what it changed, found by predicting
    again without it: the natural parameter (in the models' units) and the mean; of items the log odds and the
    probability."""
    answer.check(table, model)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    key = None if item is None else _key(fitted, item)
    rows = inference.explain(fitted, tables.read(table, layout), row, item=key, term=term, member=member, tell=note)
    answer.give([rows], table=True)


def summary(model: arguments.Model, json: arguments.Json = False) -> None:
    """A fitted model in words."""
    fitted = tables.load(model)

    from efattn.inference.summary import as_data, summary

    if json:
        out.print_json(as_data(fitted) | {"notes": [in_words(one) for one in fitted.notes]})
    else:
        tell(summary(fitted, in_words))


def _key(fitted: Any, words: list[str]) -> Any:
    """An item's name from the words of the command line, in the types of its columns."""
    vocabulary = fitted.vocabulary
    kinds = vocabulary.known.kinds
    if len(words) != len(kinds):
        names = " ".join(name.upper() for name in vocabulary.columns)
        raise DataError(
            f"An item of this model is {len(kinds)} words, {names}; found {len(words)}. Quote names with spaces."
        )
    keys = tuple(_typed(word, kind) for word, kind in zip(words, kinds, strict=True))
    return keys[0] if len(keys) == 1 else keys


def _items(fitted: Any, words: list[str] | None) -> Any:
    """Names of items from words of the command line: each a name, or a file that has the items' columns; or levels by
    column of the item features, where all are COLUMN=LEVEL."""
    if words is None:
        return None
    described = fitted.schema.features
    known = [] if described is None else [column.name for column in described.columns]
    if words and all(word.partition("=")[0] in known for word in words):
        levels = dict[str, list[str]]()
        for word in words:
            levels.setdefault(word.partition("=")[0], []).append(word.partition("=")[2])
        return levels
    names, columns = list[Any](), fitted.vocabulary.columns
    for word in words:
        if Path(word).is_file():
            rows = zip(*(column.to_list() for column in tables.read(word, {}).columns(columns, "item")), strict=True)
            names += [keys[0] if len(keys) == 1 else keys for keys in rows if None not in keys]
        else:
            names.append(_key(fitted, [word]))
    return names


def _typed(word: str, kind: str) -> Any:
    try:
        if kind in ("integer", "unsigned"):
            return int(word)
        if kind == "number":
            return float(word)
        if kind == "date":
            return datetime.date.fromisoformat(word)
        if kind.startswith("datetime"):
            return datetime.datetime.fromisoformat(word)
    except ValueError:
        return word  # the vocabulary says what there is
    return {"true": True, "false": False}.get(word.lower(), word) if kind == "boolean" else word


def _numbers(groups: Any, words: list[str] | None) -> Any:
    """Which of the groups are meant."""
    import numpy as np

    if words is None:
        if len(groups) == 1:
            return np.array([0])
        raise DataError(
            f"Attention is shown for one group at a time; the table has {len(groups)}. Say which: --group "
            f"{_plain(groups.labels[0])}, for instance."
        )
    for number in range(len(groups)):
        name = groups.labels[number]
        if [str(key) for key in (name if isinstance(name, tuple) else (name,))] == words:
            return np.array([number])
    raise DataError(f"There is no group {' '.join(words)!r} in this table; the first is {_plain(groups.labels[0])!r}.")


def _plain(name: Any) -> str:
    return " --group ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _label(x: Any) -> str:
    return " ".join(map(str, x)) if isinstance(x, tuple) else "unknown" if x is None else str(x)


def _matrix(weights: Any) -> None:
    """Targets down, contexts across, in percent; where that is too wide to be read, the most important contexts of
    each target."""
    import polars as pl
    from rich.console import Console

    steps = [f" (-{lag})" if lag else "" for lag in weights.lags]
    heads = [_label(x) + step for x, step in zip(weights.contexts, steps, strict=True)]
    targets, mean = [_label(x) for x in weights.targets], weights.mean()
    rows: dict[str, Any] = {"in percent": targets}
    if max(map(len, targets)) + sum(min(len(head), NARROW) + 4 for head in heads) <= Console().width:
        rows |= {f"{j + 1} {head}": [round(100 * w) for w in mean[:, j]] for j, head in enumerate(heads)}
    else:
        best = (-mean).argsort(1, kind="stable")[:, :MOST]
        rows["looks most at"] = [
            ", ".join(f"{heads[j]} {round(100 * mean[i, j])}" for j in row) for i, row in enumerate(best)
        ]
        say(f"{len(heads)} contexts: the {MOST} that each row looks at most; -o FILE writes them all.")
    out.show(pl.DataFrame(rows), rows=10**6)

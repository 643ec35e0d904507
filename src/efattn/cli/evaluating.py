"""efattn evaluate: how well a model predicts what came; efattn split: tables to fit on and to judge by."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli import output as out
from efattn.cli.messages import note, say, tell
from efattn.cli.names import flag
from efattn.errors import DataError, counted

LENGTHS = [1, 5, 10, 20]
UNITS = ("mse", "mae", "crps")  # in the units of a column, or their squares
PART = "The parts"


class Rows(Enum):
    auto, target, last, all = "auto", "target", "last", "all"


class By(Enum):
    last, time, groups = "last", "time", "groups"


def add_to(app: typer.Typer) -> None:
    for verb, *examples in (
        (
            evaluate,
            "efattn evaluate m.efattn events-test.csv",
            "efattn evaluate m.efattn events-test.csv -k 10 -o users.csv --plot reliability.png",
        ),
        (
            split,
            "efattn split events.csv --group user --order at -o events.csv",
            "efattn split sales.csv --by time --group shop --order day --test 0.2 -o sales.parquet",
        ),
    ):
        arguments.add(app, verb, *examples)


@arguments.spelled_out
def evaluate(
    model: arguments.Model,
    table: arguments.Source,
    k: Annotated[
        list[int] | None,
        typer.Option(flag("k"), "-k", help="Length of a list; repeat for several.", show_default="1, 5, 10, 20"),
    ] = None,
    rows: Annotated[
        Rows,
        typer.Option(
            help="Which are predicted: those of the target column, the last of each group, or all; auto for the target "
            "column's where there is one, else the last for a model of items from the past, else all."
        ),
    ] = Rows.auto,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="That column; by default the model's.", show_default=False),
    ] = None,
    seen: Annotated[
        bool | None,
        typer.Option(
            "--seen/--no-seen",
            help="Rank items of a row's context too; by default where the model lets items repeat.",
            show_default=False,
        ),
    ] = None,
    member: arguments.Member = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the same by group: .csv, .tsv or .parquet.",
            show_default=False,
        ),
    ] = None,
    items: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the same by item.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Draw the mass of lists against their hits; of values, where they lie in their distributions.",
            show_default=False,
        ),
    ] = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
    piece_size: arguments.PieceSize = arguments.PIECE,
    *,
    layout: dict[str, Any],
) -> None:
    """How well a model predicts rows that it did not see, each from its context.

    Items are ranked among the whole catalogue: recall (the hit rate), NDCG and MRR of the item that came, at several
    lengths of the list; how much of the catalogue the lists cover and how novel they are; whether the mass of a list is
    the share of its hits. Of values: log score, CRPS, errors, and how often intervals hold what came. Standard errors
    are over groups; an item that the model does not know counts as missed."""
    for path, suffixes in ((output, out.FORMATS), (items, out.FORMATS), (plot, (".png",))):
        out.check_output(path, force, suffixes)
        out.check_apart(path, "A result", model, table, *(one for one in (output, items, plot) if one is not path))
    if any(length < 1 for length in k or ()):
        raise DataError(f"{flag('k')} is the length of a list, a whole number >= 1; found {k}.", option="k")
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Evaluating")
    how: dict[str, Any] = {"rows": rows.value, "target": target, "seen": seen, "member": member}
    told = inference.evaluate(fitted, pieces, k or LENGTHS, **how, tell=note)
    if items is not None and told.by_item is None:
        raise DataError("This model knows no items: leave --items out.")
    if plot is not None:
        from efattn.plots import save

        save(told.plot(), plot)
    for path, frame in ((output, told.by_group), (items, told.by_item)):
        if path is not None:
            say(f"Wrote {counted(out.deliver([frame], path, False), 'row')} to {path}.")
    if json:
        out.print_json(told.to_json())
    else:
        report(told, by_column=fitted.wide is not None)


def report(told: Any, by_column: bool = False) -> None:
    """Tables for people: lists by their length, then what has none. by_column: those of a wide table, whose errors are
    in units of their own and have no sum."""
    import polars as pl

    from efattn.data.wide import VALUE

    tell(told.words + "\n")
    shown = ("recall", "ndcg", "mrr", "mass", "coverage", "novelty")
    parts = [("all", shown), *((part, shown[:3]) for part in ("repeat", "new") if told.about.get("repeats"))]
    for part, names in parts:
        listed = {(x.k, x.metric): x for x in told.lines if x.part == part and isinstance(x.k, int)}
        lengths = list(dict.fromkeys(k for k, _ in listed))
        if lengths:
            heads: dict[str, Any] = {"k" if part == "all" else f"{part} items, k": lengths}
            out.show(pl.DataFrame(heads | {name: [_number(listed[k, name]) for k in lengths] for name in names}))
            tell()
    rest = [x for x in told.lines if x.part == "all" and not isinstance(x.k, int)]
    rest = [x for x in rest if x.metric not in UNITS] if by_column else rest
    columns = {"of": [x.of for x in rest], "what": [_name(x) for x in rest], "mean": [_number(x) for x in rest]}
    out.show(pl.DataFrame(columns))
    if by_column:
        tell()
        named = [name for name in told.by_item.columns if not name.startswith(f"{VALUE}_")]
        shown = (*named, *(f"{VALUE}_{name}" for name in ("log_score", *UNITS, "inside@0.9")))
        frame = told.by_item.select(pl.col(name).name.map(lambda x: x.removeprefix(f"{VALUE}_")) for name in shown)
        out.show(frame.with_columns(pl.selectors.float().round(4)))
    if told.trust:
        tell(f"\n{told.trust}")


def _number(line: Any) -> str:
    """With its standard error, where it has one that is to be read."""
    if line.mean is None:
        return ""
    error = line.error if line.metric in ("recall", "ndcg") or line.k is None or line.k < 1 else None
    return f"{line.mean:.4f}" if error is None else f"{line.mean:.4f} ± {error:.4f}"


def _name(line: Any) -> str:
    if line.k is None:
        return str(line.metric)
    return f"{'promised by' if line.metric == 'promised' else 'inside'} its {line.k:.0%} interval"


@arguments.spelled_out
def split(
    table: arguments.Source,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="As events.csv, for events-train.csv, events-validation.csv and events-test.csv; .tsv or .parquet.",
            show_default=False,
        ),
    ],
    by: Annotated[
        By,
        typer.Option(
            help="last: the last row of each group tests, the one before it validates. time: the last rows of the "
            "whole table test, those before them validate. groups: whole groups, at random."
        ),
    ] = By.last,
    last_out: Annotated[bool, typer.Option("--last-out", help="--by last, in a word.")] = False,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The groups; repeat for several columns.", show_default=False),
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="NAME", help="What came first; row for table order.", show_default=False)
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Rows of each group, or a share of rows or groups: 1 for last, else 0.1; 0 for none.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[float | None, typer.Option(help="Likewise; at least some.", show_default=False)] = None,
    target: Annotated[str, typer.Option(metavar="NAME", help="What to call the new column.")] = "target",
    seed: Annotated[int, typer.Option(min=0, help="Of the groups that are drawn.")] = 0,
    force: arguments.Force = False,
    json: arguments.Json = False,
    *,
    layout: dict[str, Any],
) -> None:
    """A table to fit on, one to choose by and one to judge by.

    Each has the rows that count and their history: the column target is true where a row counts. Fit on the first, and
    give the others to evaluate."""
    if last_out and by != By.last:
        raise DataError(f"--last-out is --by last: leave it out, or --by {by.value}.", option="by")
    paths = {name: output.with_name(_beside(output.name, name)) for name in ("train", "validation", "test")}
    for path in paths.values():
        out.check_output(path, force, out.FORMATS)
        out.check_apart(path, "A part", table)
    tables.check_table(table, layout)

    from efattn.data import split as parts

    source = tables.read(table, layout)
    sizes = {"validation": validation, "test": test}
    groups = [name.strip() for word in group or () for name in ([word] if word in source.names else word.split(","))]
    found = parts(source, by.value, group=groups, order=order, **sizes, target=target, seed=seed)
    written = dict[str, dict[str, Any]]()
    for name, frame in found._asdict().items():
        if frame is not None:
            rows = out.deliver([frame], paths[name], False)
            written[name] = {"file": str(paths[name]), "rows": rows, "targets": int(frame[target].sum())}
    if json:
        out.print_json(written)
        return
    for name, one in written.items():
        tell(f"{name}: {one['targets']:,} targets in {counted(one['rows'], 'row')}, {one['file']}")


def _beside(name: str, part: str) -> str:
    """events-train.csv.gz of events.csv.gz"""
    path = Path(name)
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return f"{name.removesuffix(kind)}-{part}{kind}"

"""Arguments and options that several verbs share, and how verbs are added to the command."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli.declaring import with_parameters
from efattn.cli.names import LAYOUT, flag
from efattn.cli.output import Answer
from efattn.errors import DataError

SEVERAL = ("--quantiles",)  # options that take several numbers
PIECE = 128.0  # MiB
PANEL = "How the table is laid out (found from the file unless said)"


def _probability(interval: float) -> float:
    if not 0 < interval < 1:
        raise DataError(f"{flag('interval')} is a probability between 0 and 1; found {interval!r}.", option="interval")
    return interval


def _size(mib: float) -> float:
    if not (math.isfinite(mib) and mib > 0):
        raise DataError(f"--piece-size is a number of MiB > 0, not {mib}.")
    return mib


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit wrote.", show_default=False)]
Source = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="CSV, TSV or Parquet, also .gz; - is standard input.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to .csv, .tsv or .parquet, also .gz.", show_default=False
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the output if it exists.")]
PieceSize = Annotated[
    float,
    typer.Option(
        "--piece-size",
        metavar="MIB",
        help="A larger file is read in pieces of whole groups, of about this size.",
        callback=_size,
    ),
]

Member = Annotated[
    int | None, typer.Option(help="One member of an ensemble, from 0; by default their mixture.", show_default=False)
]
OneMember = Annotated[int, typer.Option("--member", help="Which member of an ensemble, from 0.")]
Interval = Annotated[
    float, typer.Option(help="How likely a value lies between lower and upper.", callback=_probability)
]
Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn.")]

Separator = Annotated[str | None, typer.Option(help="Between the columns.", rich_help_panel=PANEL, show_default=False)]
Decimal = Annotated[
    str | None, typer.Option(help="Point or comma in numbers.", rich_help_panel=PANEL, show_default=False)
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="The first line has the names.", rich_help_panel=PANEL, show_default=False
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="The columns' names.", rich_help_panel=PANEL, show_default=False),
]
Encoding = Annotated[
    str | None, typer.Option(help="Of the text, as latin-1.", rich_help_panel=PANEL, show_default=False)
]


Baskets = Annotated[
    bool,
    typer.Option("--baskets", help="One basket a line, its items side by side: milk,bread,tea.", rich_help_panel=PANEL),
]


def add(app: typer.Typer, verb: Callable[..., None], *examples: str) -> None:
    """A verb, whose help ends with how it is called."""
    heading = "Examples:" if len(examples) > 1 else "Example:"
    app.command(epilog="\n\n".join([heading, *examples]))(verb)


def spelled_out(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose `layout` (of its tables) and `answer` (where it goes) a shell says by several options each."""
    own = inspect.signature(verb).parameters
    several = {"layout": (layout, layout_parameters()), "answer": (_answer, _answer_parameters())}

    @functools.wraps(verb)
    def asked_for(**asked: Any) -> None:
        verb(**{name: several[name][0](asked) if name in several else asked[name] for name in own})

    told = (several[name][1] if name in several else [one] for name, one in own.items())
    return with_parameters(asked_for, chain.from_iterable(told))


def layout(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What tables.read takes, of all that was asked."""
    separator, decimal, header, columns, encoding, baskets = (asked[name] for name in LAYOUT)
    if separator in ("tab", "\\t"):
        separator = "\t"
    if separator is not None and (len(separator) != 1 or not separator.isascii()):
        raise typer.BadParameter(f"a separator is one character, or 'tab'; found {separator!r}")
    if decimal not in (None, ".", ","):
        raise typer.BadParameter(f"the decimal sign is . or ,; found {decimal!r}")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    options = {"separator": separator, "decimal": decimal, "header": header, "columns": names, "encoding": encoding}
    given = {name: option for name, option in options.items() if option is not None}
    if baskets and (wrong := [name for name in given if name in ("decimal", "header", "columns")]):
        raise DataError(f"--baskets has lines of items and nothing else: leave {flag(wrong[0])} out.")
    return given | ({"baskets": True} if baskets else {})


def layout_parameters() -> list[inspect.Parameter]:
    """The options that say how a table is laid out."""
    kinds = (Separator, Decimal, Header, Columns, Encoding, Baskets)
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if kind is Baskets else None, annotation=kind
        )
        for name, kind in zip(LAYOUT, kinds, strict=True)
    ]


def _answer(asked: Mapping[str, Any]) -> Answer:
    return Answer(asked["output"], asked["force"], asked["json"])


def _answer_parameters() -> list[inspect.Parameter]:
    """The options that say where an answer goes."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in (("output", Output, None), ("force", Force, False), ("json", Json, False))
    ]


def entries(words: list[str] | None) -> dict[str, str] | None:
    """NAME=ENTRY, several times, by name."""
    if words is None:
        return None
    for word in words:
        if "=" not in word:
            raise DataError(f"--attributes takes NAME=ENTRY, as price=3; found {word!r}.", option="attributes")
    return dict(word.split("=", 1) for word in words)


def probabilities(name: str, words: list[str] | None) -> list[float]:
    """Of an option that takes probabilities, several times or with commas: 0.1,0.5."""
    found = []
    for word in ",".join(words or ()).split(",") if words else ():
        p = float(word) if is_number(word) else math.nan
        if not 0 < p < 1:
            raise DataError(f"{flag(name)} takes probabilities between 0 and 1; found {word!r}.", option=name)
        found.append(p)
    return found


def joined(words: list[str]) -> list[str]:
    """--quantiles 0.1 0.5 as --quantiles 0.1,0.5: an option takes one word."""
    kept: list[str] = []
    for word in words:
        if len(kept) > 1 and kept[-2] in SEVERAL and is_number(word) and is_number(kept[-1].split(",")[-1]):
            kept[-1] += f",{word}"
        else:
            kept.append(word)
    return kept


def is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False

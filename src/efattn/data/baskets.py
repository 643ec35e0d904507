"""Baskets, one per line.

milk,bread          basket  item
milk           ->   0       milk
                    0       bread
                    1       milk
"""

import csv
import io
from typing import TYPE_CHECKING, Any

from efattn.data.files import read_lines, stray_quote
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl


def read_baskets(source: Any, separator: str = ",", encoding: str | None = None) -> "pl.DataFrame":
    """One row per item of each line of a file: `basket`, counted from 0 without blank lines, and `item`. Blanks around
    an item do not count, nor do empty items; an item with the separator in it stands in quotes."""
    import polars as pl

    if len(separator) != 1 or separator in '"\n\r':
        raise DataError(f"A separator is one character such as ','; found {separator!r}.", option="separator")
    name, text = read_lines(source, encoding)
    if '"' in text:
        line = stray_quote(text, separator)
        if line is not None:
            raise DataError(f"{name} has a stray quote in line {line}. Write it twice within quotes, or take it away.")
        baskets = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True))
        column = pl.Series("item", baskets, dtype=pl.List(pl.String))
    else:
        column = pl.Series("item", text.split("\n")).str.split(separator)
    column = column.list.eval(pl.element().str.strip_chars())
    column = column.list.eval(pl.element().filter(pl.element() != ""))
    frame = pl.DataFrame({"item": column}).filter(pl.col("item").list.len() > 0).with_row_index("basket")
    if not len(frame):
        raise DataError(f"{name} is empty: there is no item in it.")
    return frame.explode("item").select(pl.col("basket").cast(pl.Int64), "item")

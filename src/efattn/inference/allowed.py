"""Which items may be recommended.

    among      these alone            exclude    all but these            at_least    those that are so probable

Each of the first two is a list of names, one name, a table that has the items' columns, or levels by column of the
item features, as {"category": ["tea", "coffee"]}: items that have one of them, of every column named. Probabilities
stay what they are: nothing is shared out among the items that are left.
"""

from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Table
from efattn.data.keys import distinct
from efattn.errors import DataError, Note, counted, named, option
from efattn.inference.fitted import Fitted


def allowed(fitted: Fitted, among: Any, exclude: Any) -> tuple[Tensor | None, list[Note]]:
    """(item,), truth values, None where all are; and what to tell of names that the model does not know."""
    notes = list[Note]()
    if among is None and exclude is None:
        return None, notes
    may = np.full(len(fitted.vocabulary) + 1, among is None)
    if among is not None:
        numbers = _numbers(fitted, among, "among", notes)
        may[numbers] = True
        if not may[:-1].any():
            said = f"None of the items in {named('among')} is known to this model. Check their names and types."
            raise DataError(said, option="among")
    if exclude is not None:
        may[_numbers(fitted, exclude, "exclude", notes)] = False
    return torch.as_tensor(may[:-1]), notes


def _by_levels(fitted: Fitted, given: Mapping[Any, Any], what: str) -> np.ndarray:
    """Of items that have one of the levels, of every column named."""
    known = fitted.schema.features
    if known is None:
        said = f"{named(what)} by columns is for models that were fitted with {option('item_features')}; this was not."
        raise DataError(said, option=what)
    may = np.ones(len(known), bool)
    for column, levels in given.items():
        one = isinstance(levels, str) or not isinstance(levels, Iterable)
        may &= known.having(str(column), [levels] if one else list(levels))
    return np.flatnonzero(may)


def check_at_least(at_least: Any) -> None:
    if isinstance(at_least, bool) or not isinstance(at_least, Real) or not 0 <= float(at_least) <= 1:
        raise DataError(f"{named('at_least')} is a probability from 0 to 1; found {at_least!r}.", option="at_least")


def _numbers(fitted: Fitted, given: Any, what: str, notes: list[Note]) -> np.ndarray:
    """Of each item, one past the last for those that are not known."""
    vocabulary = fitted.vocabulary
    if isinstance(given, Mapping):
        return _by_levels(fitted, given, what)
    if isinstance(given, Path | Table) or hasattr(type(given), "columns"):
        table = Table.read(given)
        names = distinct(table.columns(vocabulary.columns, "item"), "item", len(table))[1]
        numbers = vocabulary.numbers(names)
    else:
        one = isinstance(given, str) or not isinstance(given, Iterable) or given in vocabulary
        numbers = np.array([vocabulary.find(name) for name in ([given] if one else given)], np.int64)
    strange = int((numbers == vocabulary.unknown).sum())
    if strange:
        said = f"{named(what)}: {counted(strange, 'item')} of {len(numbers)} not known to this model."
        notes.append(Note("items not known", said, option=what, important=what == "among"))
    return numbers

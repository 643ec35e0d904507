"""Two sets of results, figure by figure.

    figure      old    new    new / old    better | worse | level

Level is within a tenth. Seconds of different machines tell nothing of the code, and get no verdict.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from efattn.bench.figures import Figure, figures
from efattn.errors import DataError

LEVEL = 0.1


class Line(NamedTuple):
    """ratio: new / old, None where that is no number; verdict: better, worse, level, gone, new or other machine."""

    bench: str
    figure: str
    old: float | None
    new: float | None
    ratio: float | None
    verdict: str


def read(place: Path) -> dict[str, dict[str, Any]]:
    """By bench, what a folder of results or one file of them holds."""
    if not place.exists():
        raise DataError(f"{str(place)!r} is not there: name a folder of results, or one of its files.")
    found = {}
    for path in [place] if place.is_file() else sorted(place.glob("*.json")):
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{str(path)!r} cannot be read as results of a bench: {error}") from error
        if isinstance(one, dict) and isinstance(one.get("records"), list):
            found[one.get("about", {}).get("bench", path.stem)] = one
    if not found:
        raise DataError(f"{str(place)!r} has no results: efattn bench -o FOLDER writes them.")
    return found


def compared(old: Path, new: Path) -> list[Line]:
    before, after = read(old), read(new)
    return [line for bench in before | after for line in _bench(bench, before.get(bench), after.get(bench))]


def _bench(bench: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Iterator[Line]:
    first, second = ({x.name: x for x in figures(bench, one["records"] if one else [])} for one in (old, new))
    same = machine(old) == machine(new)
    for name in first | second:
        yield _line(bench, first.get(name), second.get(name), same)


def machine(results: dict[str, Any] | None) -> Any:
    return (results or {}).get("about", {}).get("machine")


def _line(bench: str, old: Figure | None, new: Figure | None, same: bool) -> Line:
    either = new or old
    assert either is not None
    values = (None if old is None else old.value, None if new is None else new.value)
    if old is None or new is None:
        return Line(bench, either.name, *values, None, "new" if old is None else "gone")
    ratio = new.value / old.value if old.value else None
    if not same and not new.ratio:
        return Line(bench, either.name, *values, ratio, "other machine")
    if ratio is None or abs(ratio - 1) <= LEVEL:
        level = ratio is not None or new.value == old.value
        return Line(bench, either.name, *values, ratio, "level" if level else _word(new.value < old.value, new.better))
    return Line(bench, either.name, *values, ratio, _word(ratio < 1, new.better))


def _word(less: bool, better: str) -> str:
    return "better" if less == (better == "less") else "worse"


def told(lines: list[Line]) -> str:
    """The lines as a table, and how many there are of each verdict."""
    wide = max((len(f"{x.bench}  {x.figure}") for x in lines), default=0)
    rows = [f"{'':{wide}}{'old':>12}{'new':>12}{'new / old':>11}"]
    for x in lines:
        numbers = "".join(f"{'' if v is None else f'{v:.4g}':>12}" for v in (x.old, x.new))
        ratio = "" if x.ratio is None else f"{x.ratio:.2f}"
        rows.append(f"{f'{x.bench}  {x.figure}':{wide}}{numbers}{ratio:>11}  {x.verdict}")
    kinds = dict.fromkeys(x.verdict for x in lines)
    counts = ", ".join(f"{sum(x.verdict == kind for x in lines)} {kind}" for kind in kinds)
    return "\n".join([*rows, f"{counts}."])

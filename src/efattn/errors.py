"""Errors and notes. Each says what was expected, what was found, where, and what to do.

Both carry what they are about beside their text (column, row, option), so that nobody has to read it out of a sentence.
An option inside a text is written by `option`, so that each front end can show it by its own name:

    option("missing", -1)     missing=-1 in Python      --missing -1 in a shell
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

_OPEN, _CLOSE = "\x02", "\x03"  # around an option inside a text; nothing that a user writes survives as these
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}=]+)=([^{_CLOSE}]*){_CLOSE}")
ANY = "..."


def option(name: str, value: object = ANY) -> str:
    """An option and its value inside the text of an error or a note; without a value, any."""
    shown = value if isinstance(value, str) and value in (ANY, "[...]") else repr(value)
    return f"{_OPEN}{name}={_unmarked(shown)}{_CLOSE}"


def shown(text: str, show: Callable[[str, str], str] = "{}={}".format) -> str:
    """A text as one front end prints it: show(name, value) says how an option reads there, in Python unless said."""
    return _unmarked(_MARKED.sub(lambda found: show(found[1], found[2]), text))


def _unmarked(text: str) -> str:
    return text.replace(_OPEN, "").replace(_CLOSE, "")


class EfattnError(Exception):
    """Anything efattn raises on purpose. text: with its options marked; column, row, option: what it is about."""

    def __init__(
        self, text: str = "", *, column: str | None = None, row: int | None = None, option: str | None = None
    ) -> None:
        super().__init__(text)
        self.text, self.column, self.row, self.option = text, column, row, option

    def __str__(self) -> str:
        return shown(self.text)


class DataError(EfattnError, ValueError):
    """A table, a column, a value or an option that cannot be used as it is."""


class ModelFileError(EfattnError, ValueError):
    """A model file that is cut, edited, from a newer version, or not a model at all."""


class TrainingError(EfattnError, ArithmeticError):
    """Training that cannot go on, as when the loss turns into NaN."""


class EfattnWarning(UserWarning):
    """A note that a user should not miss."""


@final
@dataclass(frozen=True)
class Note:
    """What was understood or done with a table. kind: one word or two, the same for notes of one kind; important:
    shown as a warning."""

    kind: str
    text: str
    column: str | None = None
    row: int | None = None
    option: str | None = None
    important: bool = False

    def __str__(self) -> str:
        return shown(self.text)

    def to_json(self) -> dict[str, Any]:
        return {name: x for name, x in asdict(self).items() if x not in (None, False)}

    @classmethod
    def from_json(cls, saved: Any) -> "Note":
        """From `to_json`, or from a plain sentence, as older files have it."""
        return cls("note", saved) if isinstance(saved, str) else cls(**saved)

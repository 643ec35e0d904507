"""Errors and notes. Each says what was expected, what was found, where, and what to do.

Both carry what they are about beside their text (column, row, option), so that nobody has to read it out of a sentence.
An option inside a text is written by `option`, so that each front end can show it by its own name:

    option("missing", -1)                  missing=-1             in a shell: --missing -1
    option("rate", 0.1, of="Training")     Training(rate=0.1)     in a shell: --rate 0.1
    named("missing")                       missing                in a shell: --missing
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

_OPEN, _CLOSE = "\x02", "\x03"  # around an option inside a text; nothing that a user writes survives as these
_MARKED = re.compile(f"{_OPEN}(?:(\\w+):)?(\\w+)(?:=([^{_CLOSE}]*))?{_CLOSE}")
ANY = "..."


def option(name: str, value: object = ANY, *, of: str | None = None) -> str:
    """An option and its value inside the text of an error or a note; without a value, any. of: what it is an option
    of, where that has to be written out in Python."""
    shown = value if isinstance(value, str) and value in (ANY, "[...]") else repr(value)
    return f"{_OPEN}{f'{of}:' if of else ''}{name}={_unmarked(shown)}{_CLOSE}"


def named(name: str) -> str:
    """The name of an option inside such a text."""
    return f"{_OPEN}{name}{_CLOSE}"


def shown(text: str, show: Callable[[str, str | None], str] | None = None) -> str:
    """A text as one front end prints it: show(name, value) says how an option reads there, value None for the name
    alone. In Python unless said."""

    def one(mark: re.Match[str]) -> str:
        owner, name, value = mark.groups()
        if show is not None:
            return show(name, value)
        plain = name if value is None else f"{name}={value}"
        return f"{owner}({plain})" if owner else plain

    return _unmarked(_MARKED.sub(one, text))


def counted(count: int, what: str) -> str:
    """1 group; 1,024 groups."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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


# What a model raises that cannot cope with a table, where others may.
FAILURES = (EfattnError, ArithmeticError, MemoryError, RuntimeError, ValueError)


class EfattnWarning(UserWarning):
    """A note that a user should not miss."""


@final
@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return f"Note({self.kind!r}, {str(self)!r})"

    def to_json(self) -> dict[str, Any]:
        return {name: x for name, x in asdict(self).items() if x not in (None, False)}

    @classmethod
    def from_json(cls, saved: Any) -> "Note":
        """From `to_json`, or from a plain sentence, as older files have it."""
        return cls("note", saved) if isinstance(saved, str) else cls(**saved)

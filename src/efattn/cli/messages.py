"""What the shell says: one line each on standard error, options by the shell's names, nothing a terminal would obey.

Names and values come from a user's table. A control character among them is shown, never sent: an escape sequence may
move the cursor, change the title or hide what was written before.
"""

import logging
import sys
import unicodedata
from typing import Any

import typer

from efattn.cli.names import shell_option
from efattn.errors import EfattnError, Note, shown

log = logging.getLogger("efattn")
_HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs")  # control, format (right-to-left marks, zero width), separators of lines
_KEPT = "\u200c\u200d"  # joiners, without which some scripts cannot be written


def visible(text: str, keep: str = "") -> str:
    """With what a terminal would obey written out; keep: characters that stay."""
    if text.isascii() and text.isprintable():
        return text
    stays = keep + _KEPT
    return "".join(
        repr(c)[1:-1] if unicodedata.category(c) in _HIDDEN and c not in stays and c != " " else c for c in text
    )


def in_words(thing: Any) -> str:
    """An error, a note or a text, with its options as the shell has them."""
    text = thing.text if isinstance(thing, EfattnError | Note) else str(thing)
    return shown(text, shell_option)


def say(thing: Any) -> None:
    """One line on standard error."""
    typer.echo(f"efattn: {visible(' '.join(in_words(thing).split()))}", err=True)


def note(thing: Note | str) -> None:
    say(f"note: {in_words(thing)}")


def complain(thing: Any, code: int = 2) -> int:
    say(thing)
    return code


def tell(text: str = "") -> None:
    """Lines on standard output."""
    typer.echo(visible(text, keep="\n"))


def emit(text: str, end: str = "\n") -> None:
    """Data on standard output: as they are, unless a terminal would see them."""
    typer.echo(visible(text, keep="\n\t") if sys.stdout.isatty() else text, nl=end == "\n")


class Line(logging.Formatter):
    """A log record as `say` would say it."""

    def format(self, record: logging.LogRecord) -> str:
        told = in_words(record.msg) if isinstance(record.msg, Note | EfattnError) else shown(record.getMessage())
        return f"efattn: {visible(told, keep=chr(10))}"

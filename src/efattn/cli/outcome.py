"""From arguments to an exit code: what goes wrong becomes one line on standard error.

0 fine, or the reader of a pipe had enough     2 the user's mistake     130 interrupted     1 ours
"""

import errno
import logging
import os
import signal
import sys
import traceback
import warnings
from typing import Any, NoReturn

import typer

from efattn.cli.arguments import joined
from efattn.cli.launched import check_verb, hush, rank, speaks
from efattn.cli.messages import Line, complain
from efattn.errors import EfattnError, EfattnWarning

log = logging.getLogger("efattn")
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
MEMORY = (
    "There is not enough memory for this. Try --max-length, which cuts long groups, fewer --tokens, a smaller --width, "
    "or a smaller table."
)
# how torch says that there is none left, in a RuntimeError
NO_MEMORY = ("not enough memory", "DefaultCPUAllocator", "out of memory", "Storage size calculation overflowed")
TERMINATED = 143
ENDED = "Ended from outside, as when another of several processes ended. With --checkpoint, --resume goes on."
BUG = "This is a mistake in efattn. Please report it with what --debug prints."


class Interrupted(Exception):
    """Stopped by the user after something was kept: says what."""


def run(app: typer.Typer) -> NoReturn:
    if "_EFATTN_COMPLETE" in os.environ:
        app(prog_name="efattn")
    words, loudness = _loudness(sys.argv[1:])
    closed = _open_streams()
    hush()
    _set_up(loudness)
    if closed:
        sys.exit(complain("Standard output is closed: nothing could be told. Send it to a file, or to /dev/null."))
    try:
        code = _code(app, words, loudness)
        sys.stdout.flush()
    except BrokenPipeError:  # as after `| head`
        code = _leave_quietly()
    except OSError as error:
        _leave_quietly()
        code = complain(f"Standard output cannot be written: {error.strerror}.")
    sys.exit(code)


def _open_streams() -> bool:
    """Whether standard output is closed. What is closed is taken, so that no file that is opened later gets its number
    and, with it, what was meant for a terminal."""
    closed = sys.stdout is None
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    return closed


def _code(app: typer.Typer, words: list[str], loudness: int) -> int:
    command = typer.main.get_command(app)
    try:
        check_verb(words)
        with command.make_context("efattn", joined(words)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return complain("Interrupted.", 130)
    except Interrupted as end:
        return complain(end, 130)
    except BrokenPipeError:
        raise
    except SystemExit as end:
        if end.code == TERMINATED and rank() is not None and speaks(end):
            complain(ENDED)
        raise
    except BaseException as error:  # a panic of polars is no Exception
        if loudness >= 2:
            traceback.print_exc()
        return _explain(error) if speaks(error) else 1
    return 0


def _explain(error: BaseException) -> int:
    """The one line, and the exit code."""
    if hasattr(error, "format_message"):  # of an argument or an option
        return complain(_usage(error))
    if isinstance(error, EfattnError):
        return complain(error)
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        name = f"{error.filename!r}: " if error.filename else "Standard output cannot be written: " if full else ""
        return complain(f"{name}{error.strerror or error}.")
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(x in str(error) for x in NO_MEMORY)):
        return complain(MEMORY)
    return complain(f"{type(error).__name__}: {error}. {BUG}", 1)


def _usage(error: Any) -> str:
    message = str(error.format_message()).strip()
    context = getattr(error, "ctx", None)
    help_ = f" See {context.command_path} --help." if context is not None else ""
    if not message and context is not None:  # no verb at all: the help was shown
        return f"Name a verb.{help_}"
    return message + ("" if message.endswith((".", "?", ")")) else ".") + help_


def _loudness(words: list[str]) -> tuple[list[str], int]:
    """-v, -vv and --debug may stand anywhere before a bare --."""
    end = words.index("--") if "--" in words else len(words)
    told = {"-v": 1, "--verbose": 1, "-vv": 2, "--debug": 2}
    kept = [word for word in words[:end] if word not in told]
    return kept + words[end:], min(sum(told.get(word, 0) for word in words[:end]), 2)


def _set_up(loudness: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    logging.basicConfig(handlers=[handler])
    log.setLevel(LEVELS[loudness])
    logging.captureWarnings(True)
    loud = logging.getLogger("py.warnings")
    loud.setLevel(LEVELS[loudness])
    warnings.formatwarning = lambda message, *_, **__: str(message)
    if not loudness:  # what other libraries warn about is for their users
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", module=r"efattn\b")
    warnings.filterwarnings("ignore", category=EfattnWarning)  # notes, which the verbs print
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that nothing half-written stays


def _leave_quietly() -> int:
    """Nobody reads any more: what is left in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

"""From arguments to an exit code: what goes wrong becomes one line on standard error.

0 fine, or the reader of a pipe had enough     2 the user's mistake     130 interrupted     1 ours
"""

import errno
import logging
import os
import re
import signal
import sys
import traceback
import warnings
from typing import Any, NoReturn

import typer

from efattn.errors import EfattnError

log = logging.getLogger("efattn")
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
BUG = "This is a mistake in efattn. Please report it with what --debug prints."
# how a library's keyword reads in a shell
OPTIONS = (
    "columns|separator|decimal|header|encoding|group|item|value|attributes|order|time|series|exposure|weight|target|"
    "missing|family|context|terms|support|standardise|lags|max_length|neighbours|validation|checkpoint|interval|width|"
    "heads|layers|rate|device|jobs"
)


class Interrupted(Exception):
    """Stopped by the user after something was kept: says what."""


def run(app: typer.Typer) -> NoReturn:
    if "_EFATTN_COMPLETE" in os.environ:
        app(prog_name="efattn")
    words, loudness = _loudness(sys.argv[1:])
    _set_up(loudness)
    try:
        code = _code(app, words, loudness)
        sys.stdout.flush()
    except BrokenPipeError:  # as after `| head`
        code = _leave_quietly()
    except OSError as error:
        _leave_quietly()
        code = complain(f"Standard output cannot be written: {error.strerror}.")
    sys.exit(code)


def _code(app: typer.Typer, words: list[str], loudness: int) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("efattn", words) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return complain("Interrupted.", 130)
    except Interrupted as end:
        return complain(str(end), 130)
    except BrokenPipeError:
        raise
    except Exception as error:
        if loudness >= 2:
            traceback.print_exc()
        return _explain(error)
    return 0


def _explain(error: Exception) -> int:
    """The one line, and the exit code."""
    if hasattr(error, "format_message"):  # of an argument or an option
        return complain(_usage(error))
    if isinstance(error, EfattnError):
        return complain(in_the_shell(str(error)))
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        name = f"{error.filename!r}: " if error.filename else "Standard output cannot be written: " if full else ""
        return complain(f"{name}{error.strerror or error}.")
    if isinstance(error, MemoryError):
        return complain("There is not enough memory for this. Try a smaller table, or fewer --tokens.")
    return complain(f"{type(error).__name__}: {error}. {BUG}", 1)


def _usage(error: Any) -> str:
    message = str(error.format_message()).strip()
    context = getattr(error, "ctx", None)
    help_ = f" See {context.command_path} --help." if context is not None else ""
    if not message and context is not None:  # no verb at all: the help was shown
        return f"Name a verb.{help_}"
    return message + ("" if message.endswith((".", "?", ")")) else ".") + help_


def complain(message: str, code: int = 2) -> int:
    say(" ".join(message.split()))
    return code


def say(message: str) -> None:
    """One line on standard error."""
    typer.echo(f"efattn: {message}", err=True)


def in_the_shell(message: str) -> str:
    """A message of the library with its keywords as options: encoding='latin-1' is --encoding latin-1."""
    message = re.sub(r"\bTraining\((\w+=[^)]*)\)", r"\1", message)
    message = re.sub(r"\befattn\.read_file\(\.\.\., (\w+=(?:\[\.\.\.\]|\w+))\)", r"\1", message)
    message = re.sub(r"\bresume=True\b", "--resume", message)

    def option(found: re.Match[str]) -> str:
        name, quoted, plain = found[1].replace("_", "-"), found[2], found[3]
        if name == "header" and plain in ("True", "False"):
            return "--header" if plain == "True" else "--no-header"
        rest = {"...": "NAME", "[...]": "NAME,NAME,...", None: ""}.get(plain, plain)
        return f"--{name} {quoted if quoted is not None else rest}".rstrip()

    return re.sub(rf"(?<![\w-])({OPTIONS})=(?:'([^']*)'|(\[\.\.\.\]|\.\.\.|[\w.+-]*\w))?", option, message)


def _loudness(words: list[str]) -> tuple[list[str], int]:
    """-v, -vv and --debug may stand anywhere before a bare --."""
    end = words.index("--") if "--" in words else len(words)
    told = {"-v": 1, "--verbose": 1, "-vv": 2, "--debug": 2}
    kept = [word for word in words[:end] if word not in told]
    return kept + words[end:], min(sum(told.get(word, 0) for word in words[:end]), 2)


def _set_up(loudness: int) -> None:
    logging.basicConfig(format="efattn: %(message)s", stream=sys.stderr)
    log.setLevel(LEVELS[loudness])
    logging.captureWarnings(True)
    loud = logging.getLogger("py.warnings")
    loud.setLevel(LEVELS[loudness])
    warnings.formatwarning = lambda message, *_, **__: str(message)
    if not loudness:  # what other libraries warn about is for their users
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("default", module=r"efattn\b")
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing half-written stays


def _leave_quietly() -> int:
    """Nobody reads any more: what is left in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

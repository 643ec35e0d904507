"""A command that torchrun, or another launcher, has started several times over: one of them speaks.

The processes that are not the first say nothing, unless something goes wrong with one of them before anything does with
the first: whoever fails says so, once, and what the others then say, namely that it is gone, nobody needs.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from efattn.errors import DataError

T = TypeVar("T")
ALONE = "Processes that are started together run one verb together, fit: run this one by itself."


def rank() -> int | None:
    """The number of this process, None where it is the only one."""
    try:
        return int(os.environ.get("RANK") or 0) if int(os.environ.get("WORLD_SIZE") or 1) > 1 else None
    except ValueError:
        return None


def hush() -> None:
    """Standard output and standard error of all but the first lead nowhere from now on."""
    if rank() is not None:  # what torch's own code writes where a process is gone is for its authors
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if rank():
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)


def check_verb(words: list[str]) -> None:
    if rank() is not None and words and words[0] not in ("fit", "--help", "-h", "--version"):
        raise DataError(ALONE)


def speaks(error: BaseException) -> bool:
    """Whether this process is to say what went wrong. It may then write."""
    number = rank()
    if number is None:
        return True
    if "efattn.training.teams" in sys.modules:
        from efattn.training import teams

        mine = teams.fails_first(error)
    else:
        mine = number == 0
    if mine:
        sys.stderr = sys.__stderr__
    return mine


def restarted() -> bool:
    """Whether torchrun starts it once more, after a process had failed."""
    return rank() is not None and int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0


def told(what: str, find: Callable[[], T]) -> T:
    """What is found here, or by the first process."""
    if rank() is None:
        return find()
    from efattn.training import teams

    return teams.told(what, find)


@contextmanager
def together() -> Iterator[bool]:
    """A fit in here is one fit of all processes; whether this is the one that writes."""
    if rank() is None:
        yield True
        return
    from efattn.training import together

    with together() as team:
        yield team is None or team.first

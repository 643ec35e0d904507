"""One fit at a time on a folder.

The lock is the kernel's, so that it ends with its process, however that ends; what the file says is for people.
"""

import contextlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from efattn.errors import DataError, option

log = logging.getLogger("efattn")
NAME = "training.lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, or raise a DataError that says who does; an OSError where nothing can be written."""
    path = folder / NAME
    number = _held(path)
    try:
        who = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(number, 0)
        os.pwrite(number, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still ours
        os.close(number)


def _held(path: Path) -> int:
    """The file, open and locked, and still the one that is there."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(number)
            there = os.stat(path)
            if os.path.samestat(there, os.fstat(number)):
                return number
        except BlockingIOError:
            told = os.read(number, 1000)
            os.close(number)
            raise DataError(
                f"{option('checkpoint', str(path.parent))} is in use: {_words(told)} writes to it. Wait for it, or "
                "choose another folder.",
                option="checkpoint",
            ) from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(number)
            raise
        os.close(number)  # its last holder has just removed it


def _lock(number: int) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:  # a file system without locks
        log.info("The checkpoint folder cannot be locked: %s. See to it that one fit uses it at a time.", error)


def _words(told: bytes) -> str:
    try:
        who = json.loads(told)
        return f"process {who['process']} on {who['host']}, since {who['since']},"
    except (ValueError, KeyError, TypeError):  # it has only just begun
        return "another fit"

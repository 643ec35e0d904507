"""One sealed file: tensors and one JSON object.

    safetensors( tensors, metadata = {"efattn": canonical JSON, "sha256": digest of the whole file with 0s in its
    place} )

Reading runs no code from the file and finds any changed byte. Writing goes beside the target and is then renamed, so
that a file is there whole or not at all, whenever the process dies. torch is loaded with tensors only: what a file says
about itself is had without.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from efattn.errors import EfattnError, ModelFileError

if TYPE_CHECKING:
    from torch import Tensor

VERSION = 1
BLANK = b"0" * 64
SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')
LARGEST_HEADER = 100_000_000
DEEPEST = 64  # of objects and lists within each other
CHUNK = 2**20
TRIED = bytes(2**16)  # what a path is tried with: a disk that has no room for this is full
LONGEST_NAME = 160  # bytes of a file's name that its part's name repeats; with what comes behind, any system takes it
ABANDONED = 86400.0  # seconds after which a part that nobody wrote to belongs to nobody
PART = r"\.(?:[0-9a-f]{8}\.[0-9a-f]+\.[0-9a-f]{16}|[0-9]+)\.part"  # host, process, chance; the process alone, once
HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
REMEDIES = {
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOENT: "Make its folder first.",
    errno.ENOTDIR: "Choose a path whose folders are folders.",
    errno.EISDIR: "Name a file in it.",
    errno.EACCES: "Choose another folder.",
    errno.EPERM: "Choose another folder.",
    errno.EROFS: "Choose another folder.",
    errno.ENOSPC: "Make room, or choose another path.",
    errno.EDQUOT: "Make room, or choose another path.",
}


def write(path: str | Path, kind: str, about: Mapping[str, Any], tensors: "Mapping[str, Tensor]") -> None:
    """kind: "model" or "checkpoint"; about: anything JSON can hold."""
    from safetensors.torch import save

    text = json.dumps(
        {"format": VERSION, "kind": kind, **about}, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    _strict(text)  # so that whatever is written can be read
    plain = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    data = save(plain, {"efattn": text, "sha256": BLANK.decode()})
    seal = SEAL.search(data, 0, _header_end(data[:8], len(data)))
    assert seal is not None
    digest = hashlib.sha256(data).hexdigest().encode()
    with _writing(path), beside(path) as part, open(part, "wb") as file:
        file.write(memoryview(data)[: seal.start(1)])
        file.write(digest)
        file.write(memoryview(data)[seal.end(1) :])


def read(path: str | Path, kind: str) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """What `write` wrote; a ModelFileError for anything else."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    with _opened(path) as file:
        data = file.read()
    about = _about(str(path), io.BytesIO(data), len(data), kind)
    try:
        return about, load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error}. Take another copy of it.") from error


def about(path: str | Path, kind: str) -> dict[str, Any]:
    """The JSON object alone, checked like all of it; without loading torch, and without the memory for tensors."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        return _about(str(path), file, size, kind)


def try_path(path: str | Path) -> None:
    """A ModelFileError, before anything is computed that would be lost, where no file could be written: its name is
    too long, its folder is not there or closed to us, it is a folder itself, or the disk is full."""
    with _writing(path):
        part, _ = _part(path)
        try:
            with open(part, "xb") as file:
                file.write(TRIED)
                file.flush()
                os.fsync(file.fileno())
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def beside(path: str | Path) -> Iterator[Path]:
    """A path in the same folder to write to; it takes the place of `path` at the end, or disappears. What a link leads
    to is replaced, not the link, and a file that was there hands its permissions on."""
    part, mode = _part(path)
    target = Path(os.path.realpath(path))
    _sweep(target)
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode | stat.S_IWUSR))
        yield part
        _settle(part)
        if mode is not None:
            os.chmod(part, mode)
        os.replace(part, target)
        with contextlib.suppress(OSError):  # not every file system has folders to settle
            _settle(target.parent)
    finally:
        part.unlink(missing_ok=True)


def parts(target: Path) -> list[Path]:
    """What is being written beside a file, or was when its process was killed."""
    like = re.compile(re.escape(_beginning(target)) + PART)
    try:
        return [Path(entry.path) for entry in os.scandir(target.parent) if like.fullmatch(entry.name)]
    except OSError:
        return []


def _part(path: str | Path) -> tuple[Path, int | None]:
    """A new name beside what `path` leads to, and the permissions of what is there. An OSError where no file can be.
    Host, process and chance are in the name: no two writers ever share a part."""
    target, mode = Path(os.path.realpath(path)), None
    with contextlib.suppress(FileNotFoundError):
        there = os.stat(target)
        if stat.S_ISDIR(there.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EINVAL, "It is not a plain file")
        mode = stat.S_IMODE(there.st_mode)
    name = f"{_beginning(target)}.{HOST}.{os.getpid():x}.{secrets.token_hex(8)}.part"
    return target.with_name(name), mode


def _beginning(target: Path) -> str:
    """Of the names of a file's parts. A long name is cut, so that a part fits wherever its file does."""
    return "." + os.fsdecode(os.fsencode(target.name)[:LONGEST_NAME])


def _sweep(target: Path) -> None:
    """Away with the parts of this file that a killed process left; what may still be written to stays."""
    for part in parts(target):
        host, process = [*part.name.rsplit(".", 4), "", ""][1:3]
        with contextlib.suppress(OSError, ValueError):
            dead = host == HOST and not _alive(int(process, 16))
            if dead or time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()


def _alive(process: int) -> bool:
    """As far as can be known."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _settle(path: Path) -> None:
    """Wait until it is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """What goes wrong, with the path and what to do about it."""
    try:
        os.fspath(path)
        yield
    except EfattnError:
        raise
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "Choose another path, or make room.")
        raise ModelFileError(f"{str(path)!r} cannot be written: {error.strerror or error}. {remedy}") from error
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"The path of a file is expected; found {path!r}.") from error


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    try:
        if not isinstance(path, str | os.PathLike):
            raise ModelFileError(f"The path of a file is expected; found {path!r}.")
        if stat.S_ISCHR(os.stat(path).st_mode):  # which may never end
            raise ModelFileError(f"{str(path)!r} cannot be read: it is a device. Name a file.")
        with open(path, "rb") as file:
            yield file
    except EfattnError:
        raise
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {str(path)!r}. Check the path.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{str(path)!r} cannot be read: Is a directory. Name a file in it.") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _about(path: str, file: IO[bytes], size: int, kind: str) -> dict[str, Any]:
    """The JSON object, once the seal is found intact."""
    start = file.read(8)
    end = _header_end(start, size)
    header = start + file.read(max(end - 8, 0))
    seal = SEAL.search(header) if end and len(header) == end else None
    if seal is None:
        damaged = ", or its beginning is damaged" if size else ": it is empty"
        remedy = "Name one that a fit wrote, or take another copy of it."
        raise ModelFileError(f"{path!r} is not an efattn file{damaged}. {remedy}")
    digest = hashlib.sha256(header[: seal.start(1)] + BLANK + header[seal.end(1) :])
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    if digest.hexdigest().encode() != seal[1]:
        raise ModelFileError(
            f"{path!r} is damaged or was edited: its checksum does not match. Take another copy of it."
        )
    try:
        about = _strict(_strict(header[8:].decode())["__metadata__"]["efattn"])
        version, own_kind = about["format"], about["kind"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path!r} is not an efattn file.") from error
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ModelFileError(
            f"{path!r} is of format {version}, this efattn reads up to {VERSION}. Install a newer one."
        )
    if own_kind != kind:
        raise ModelFileError(f"{path!r} is an efattn {own_kind!s}, not a {kind}.")
    return about


def _header_end(start: bytes, size: int) -> int:
    """Where the header of a safetensors file of `size` bytes ends, 0 where there is none."""
    length = int.from_bytes(start, "little") if len(start) == 8 else 0
    return 8 + length if 0 < length <= min(size - 8, LARGEST_HEADER) else 0


def _strict(text: str) -> Any:
    """JSON as every reader understands it: finite numbers, each key once, nothing nested without end."""
    value = json.loads(text, parse_constant=_number, parse_float=_number, object_pairs_hook=_once)
    level = [value]
    for _ in range(DEEPEST):
        level = [x for x in level if isinstance(x, dict | list)]
        if not level:
            return value
        level = [x for outer in level for x in (outer.values() if isinstance(outer, dict) else outer)]
    raise ValueError("JSON is nested too deeply")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"JSON has no number {text}")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("JSON has a key twice")
    return entries

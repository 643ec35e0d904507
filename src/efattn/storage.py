"""One sealed file: tensors and one JSON object.

    safetensors( tensors, metadata = {"efattn": canonical JSON, "sha256": digest of the whole file with 0s in its
    place} )

Reading runs no code from the file and finds any changed byte. Writing goes beside the target and is then renamed, so
that a file is there whole or not at all, whenever the process dies.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from efattn.errors import ModelFileError

VERSION = 1
BLANK = b"0" * 64
SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')
LARGEST_HEADER = 100_000_000


def write(path: str | Path, kind: str, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """kind: "model" or "checkpoint"; about: anything JSON can hold."""
    text = json.dumps(
        {"format": VERSION, "kind": kind, **about}, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    plain = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    data = save(plain, {"efattn": text, "sha256": BLANK.decode()})
    found = SEAL.search(data, 0, _header_end(data))
    assert found is not None
    digest = hashlib.sha256(data).hexdigest().encode()
    try:
        with beside(path) as part, open(part, "wb") as file:
            file.write(memoryview(data)[: found.start(1)])
            file.write(digest)
            file.write(memoryview(data)[found.end(1) :])
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ModelFileError(
            f"{str(path)!r} cannot be written: {error.strerror or error}. Choose another path, or make room."
        ) from error


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `write` wrote; a ModelFileError for anything else."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {str(path)!r}. Check the path.") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    about = _about(str(path), data)
    if about.get("kind") != kind:
        raise ModelFileError(f"{str(path)!r} is an efattn {about.get('kind')!s}, not a {kind}.")
    try:
        return about, load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error}. Take another copy of it.") from error


@contextlib.contextmanager
def beside(path: str | Path) -> Iterator[Path]:
    """A path in the same folder to write to; it takes the place of `path` at the end, or disappears."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _about(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object, once the seal is found intact."""
    end = _header_end(data)
    found = SEAL.search(data, 0, end) if end else None
    if found is None:
        raise ModelFileError(f"{path!r} is not an efattn file, or its beginning is damaged.")
    digest = hashlib.sha256(data[: found.start(1)] + BLANK)
    digest.update(memoryview(data)[found.end(1) :])
    if digest.hexdigest().encode() != found[1]:
        raise ModelFileError(
            f"{path!r} is damaged or was edited: its checksum does not match. Take another copy of it."
        )
    try:
        about = json.loads(json.loads(data[8:end])["__metadata__"]["efattn"])
        version = about["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path!r} is not an efattn file.") from error
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ModelFileError(
            f"{path!r} is of format {version}, this efattn reads up to {VERSION}. Install a newer one."
        )
    return about


def _header_end(data: bytes) -> int:
    """Where the header of a safetensors file ends, 0 where there is none."""
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else 0
    return 8 + size if 0 < size <= min(len(data) - 8, LARGEST_HEADER) else 0

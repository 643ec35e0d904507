"""Where the files of a data set are: the first of these folders that holds all of them.

    $EFATTN_DATA/NAME      the user's own copy
    CACHE/NAME             $XDG_CACHE_HOME/efattn or ~/.cache/efattn
    inside the package     noaa-october, the only one that may be redistributed

and last, for the one set whose licence lets a program fetch it, a download into the cache. A file may be gzipped
(FILE.gz). Every file read is held against the MD5 of the file that the numbers in the documentation come from.
"""

import gzip
import hashlib
import http.client
import io
import os
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

BUNDLED = Path(__file__).parent / "files"
TIMEOUT = 30  # seconds without a byte
LARGEST = 1 << 26  # no archive here is a tenth of this


@final
@dataclass(frozen=True)
class Origin:
    """The files behind a data set."""

    name: str  # of the folder
    files: Mapping[str, str]  # name: MD5
    source: str
    licence: str
    advice: str  # how to get the files
    archive: str | None = None  # an https address of a zip file, where the licence allows a program to fetch it
    inside: str = ""  # the folder in the archive
    derived: bool = False  # made from the source by some rule: a file made anew may differ, and is only warned about

    def folder(self) -> Path | None:
        """The first folder that holds every file. Nothing is downloaded."""
        return next((f for f in self.folders() if all(_either(f, file) for file in self.files)), None)

    def folders(self) -> list[Path]:
        """Where the files are looked for, in order."""
        own = os.environ.get("EFATTN_DATA")
        own_folder = [Path(own).expanduser() / self.name] if own else []
        return [*own_folder, cache() / self.name, *([BUNDLED / self.name] if (BUNDLED / self.name).is_dir() else [])]

    def read(self, *, download: bool = True) -> dict[str, bytes]:
        """The content of every file, unzipped and checked."""
        folder = self.folder()
        if folder is None:
            if not (download and self.archive):
                raise DataError(self.missing())
            return self.fetch()
        return {file: self._content(folder, file) for file in self.files}

    def missing(self) -> str:
        """What to tell a user who has not got the files."""
        looked = [f"  {f}: {_what_lacks(f, self.files)}" for f in self.folders()]
        if not os.environ.get("EFATTN_DATA"):
            looked.insert(0, "  $EFATTN_DATA is not set")
        return "\n".join(
            [
                f"The data set {self.name!r} is not on this machine. Looked in",
                *looked,
                f"It comes from {self.source} ({self.licence}).",
                self.advice,
                f"Put {_list(self.files)} into {cache() / self.name},",
                f"or into FOLDER/{self.name} and set EFATTN_DATA=FOLDER.",
            ]
        )

    def fetch(self) -> dict[str, bytes]:
        """Download the archive, check what is in it, and keep the files in the cache."""
        try:
            with urllib.request.urlopen(str(self.archive), timeout=TIMEOUT) as answer:
                data = answer.read(LARGEST)
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                contents = {file: archive.read(self.inside + file) for file in self.files}
        except (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            why = getattr(error, "reason", None) or error
            raise DataError(f"{self.missing()}\nDownloading {self.archive} failed: {why}") from error
        for file, content in contents.items():
            if _md5(content) != self.files[file]:
                raise DataError(
                    f"{file!r} in {self.archive} is not the file that was expected: its MD5 is {_md5(content)}, not "
                    f"{self.files[file]}. Nothing was kept. Try again; if it stays so, the archive has changed."
                )
        for file, content in contents.items():
            _keep(cache() / self.name / file, content)
        return contents

    def _content(self, folder: Path, file: str) -> bytes:
        path = _either(folder, file)
        assert path is not None
        try:
            content = path.read_bytes()
            if path.suffix == ".gz":
                content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"'{path}' cannot be read: {error}. Check its permissions, or get it again.") from error
        if _md5(content) == self.files[file]:
            return content
        if not self.derived:
            raise DataError(
                f"'{path}' is not the file of {self.source}: its MD5 is {_md5(content)}, not {self.files[file]}. It "
                f"was cut or edited. Delete it and get it again. {self.advice}"
            )
        warnings.warn(
            f"'{path}' is not the file the documented numbers come from (MD5 {_md5(content)}, not {self.files[file]}): "
            "sizes and results may differ.",
            stacklevel=4,
        )
        return content


@final
@dataclass(frozen=True)
class DataSet:
    """One line of `efattn datasets`."""

    name: str
    load: Callable[..., "pl.DataFrame"]
    what: str
    origin: Origin | None  # None: made when asked for

    @property
    def source(self) -> str:
        return self.origin.source if self.origin else "drawn when asked for"

    @property
    def licence(self) -> str:
        return self.origin.licence if self.origin else "none needed"

    @property
    def here(self) -> bool:
        """Whether it loads without a download."""
        return self.origin is None or self.origin.folder() is not None

    @property
    def where(self) -> str:
        """Where it was found, or how to get it."""
        if self.origin is None:
            return "made when asked for"
        folder = self.origin.folder()
        if folder is None:
            return (
                f"downloaded when first used, from {self.origin.archive}" if self.origin.archive else self.origin.advice
            )
        return "bundled with efattn" if folder.parent == BUNDLED else str(folder)


def cache() -> Path:
    """The folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "efattn"


def table(content: bytes, what: str, columns: Mapping[str, Any]) -> "pl.DataFrame":
    """The named columns of a CSV file, in this order, with these types."""
    import polars as pl

    try:
        return pl.read_csv(content, columns=list(columns), schema_overrides=dict(columns)).select(*columns)
    except pl.exceptions.PolarsError as error:
        first = str(error).strip().split("\n")[0].rstrip(".")
        raise DataError(f"{what} should be a CSV file with the columns {_list(columns)}: {first}.") from error


def _either(folder: Path, file: str) -> Path | None:
    return next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)


def _what_lacks(folder: Path, files: Mapping[str, str]) -> str:
    if not folder.is_dir():
        return "no such folder"
    return f"no {_list([f for f in files if not _either(folder, f)])}"


def _keep(path: Path, content: bytes) -> None:
    """Written beside, then renamed: a file is there whole or not at all."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
            part = Path(file.name)
            file.write(content)
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise DataError(
            f"'{path}' cannot be written: {error.strerror}. Make room or set XDG_CACHE_HOME to a folder of yours."
        ) from error


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _list(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)

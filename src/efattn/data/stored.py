"""A table of any size as groups on disk: what `Schema.fit_encode` gives, with arrays that are mapped into memory.

    files -> partition (files of whole groups, by names) -> each sorted and encoded -> appended to one file a field

Groups, rows and schema are those of the same table in memory, number by number. The files are kept in the cache and
found again by the names, sizes and times of what they were made from; those that nobody has used for a week go.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from efattn.data import files
from efattn.data.duplicates import duplicated
from efattn.data.encoded import Fields, Kept, opened
from efattn.data.groups import Groups
from efattn.data.lags import infer_step
from efattn.data.names import NULL
from efattn.data.partition import Partition, partition, read_rows
from efattn.data.reading import Levels, frequent
from efattn.data.roles import Roles
from efattn.data.schema import Schema, check_sizes, uneven
from efattn.data.sources import Source, files_of, too_large
from efattn.data.table import Table
from efattn.data.vocabulary import Vocabulary
from efattn.errors import DataError, Note, named, option

FORMAT = 1
KEEP = 7 * 86_400  # seconds for which what nobody uses stays
ROOM = 3  # times the table's size in memory, that the disk must have left: parts, fields and standardised values


@final
@dataclass
class Stored:
    """A path whose table stays on disk. options: of `Table.read`, for text files."""

    path: str | Path
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "polars"  # of frame

    @cached_property
    def source(self) -> Source:
        return Source(files_of(self.path), options=self.options)

    @cached_property
    def names(self) -> list[str]:
        """Of the columns."""
        self.source.parquet  # noqa: B018 (which says what is wrong with the files)
        return list(files.header(self.source.files[0], **self.options))

    def require(self, names: Sequence[str], role: str) -> None:
        """A DataError for the first column that is not there."""
        Table.read({name: [0] for name in self.names}).require(names, role)

    def fit_encode(
        self, roles: Roles, *, lags: int = 0, max_length: int | None = None, when: bool | str = False
    ) -> tuple[Schema, Groups]:
        """As `Schema.fit_encode` does."""
        check_sizes(roles, lags, max_length)
        home = cache()
        tidy(home)
        about = {"files": [_identity(path) for path in self.source.files], "roles": roles.to_json(), "lags": lags}
        about |= {"when": when, "options": dict(self.options), "format": FORMAT, "order": roles.order}
        about["max_length"] = max_length
        key = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]
        if not (home / key / "about.json").exists():
            _make(self.source, roles, lags, max_length, when, home / key)
        (home / key / "used").touch()
        schema, groups = opened(home / key, max_length)
        size = sum(path.stat().st_size for path in (home / key).iterdir())
        said = (
            f"The table is read from disk as it is needed: {size / 2**30:.2f} GiB in {str(home / key)!r}, which stay "
        )
        groups.notes.append(Note("on disk", f"{said}for a week after they are last used.", option="on_disk"))
        return schema, groups


def source_of(table: Any, on_disk: bool | str = "auto", options: Mapping[str, Any] | None = None) -> Table | Stored:
    """What to fit to: read into memory, or left on disk where it is large or that is asked for."""
    if on_disk not in (True, False, "auto"):
        raise DataError(f"{named('on_disk')} is 'auto', True or False; found {on_disk!r}.", option="on_disk")
    path = isinstance(table, (str, Path))
    if isinstance(table, Stored):
        return table
    if on_disk is True and not path:
        said = f"{option('on_disk', True)} is for files; found {type(table).__name__}."
        raise DataError(f"{said} Write it to a Parquet file, and pass its path.", option="on_disk")
    if on_disk is True or (on_disk == "auto" and path and too_large(table)):
        return Stored(table, options or {})
    return Table.read(table, **(options or {}))


def cache() -> Path:
    """Where groups on disk are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "efattn" / "groups"


def tidy(home: Path, now: float | None = None) -> None:
    """Away with what nobody has used for long, and with what was never finished."""
    now = time.time() if now is None else now
    for folder in home.iterdir() if home.is_dir() else ():
        with contextlib.suppress(OSError):
            used = folder / "used" if (folder / "used").exists() else folder
            if now - used.stat().st_mtime > KEEP or (folder.name.startswith(".") and not _alive(folder.name)):
                shutil.rmtree(folder, ignore_errors=True)


def _alive(name: str) -> bool:
    """Whether the process that writes such a folder is there."""
    try:
        os.kill(int(name.rsplit("-", 1)[1]), 0)
    except (ProcessLookupError, ValueError, IndexError):
        return False
    except OSError:
        return True
    return True


def _identity(path: Path) -> tuple[str, int, int]:
    about = path.stat()
    return str(path.resolve()), about.st_size, about.st_mtime_ns


def _make(source: Source, roles: Roles, lags: int, max_length: int | None, when: bool | str, folder: Path) -> None:
    """Written beside, and renamed when it is whole."""
    beside = folder.parent / f".{folder.name}-{os.getpid()}"
    try:
        beside.mkdir(parents=True, exist_ok=True)
        _check_room(beside, source)
        _write(partition(source, roles, beside, when), lags, max_length, when, beside)
        (beside / "used").touch()
        with contextlib.suppress(FileExistsError, OSError):
            beside.rename(folder)
        if not folder.is_dir():
            raise OSError(None, "it cannot be renamed")
    except OSError as error:
        raise DataError(
            f"The table cannot be kept in {str(folder.parent)!r}: {error.strerror or error}. Let XDG_CACHE_HOME name a "
            "folder with room for it."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _check_room(folder: Path, source: Source) -> None:
    free, needed = shutil.disk_usage(folder).free, ROOM * source.bytes
    if free < needed:
        raise DataError(
            f"The table is read in portions into {str(folder.parent)!r}, which takes about {needed / 2**30:.1f} GiB; "
            f"{free / 2**30:.1f} GiB are left there. Let XDG_CACHE_HOME name another folder."
        )


def _write(done: Partition, lags: int, max_length: int | None, when: bool | str, folder: Path) -> None:
    """Each file of rows as groups, one after the other."""
    notes, done.needs_times = list(done.notes.values()), lags > 0
    schema = replace(_schema(done, notes), max_length=max_length)
    steps, parts, several = _Steps(), list[list[Note]](), sum(path.exists() for path in done.files) > 1
    with Fields(folder) as fields:
        for path in done.files:
            frame = read_rows(path)
            if frame is None:
                continue
            kept = Kept(frame, done, schema, folded=_folded(done, schema.levels))
            del frame
            groups = schema.encode_read(kept)
            twice = duplicated(groups, kept.order, kept.words())
            parts.append([*groups.notes, *([] if twice is None else [kept.named(twice)])])
            steps.see(groups.times_between)
            fields.append(kept, groups)
            path.unlink()
        notes += _joined(parts) if several else parts[0]
        if schema.when_kind is not None and when == "auto" and not steps.uneven:
            schema = replace(schema, when_kind=None)
            fields.drop("when")
        schema = _with_lags(schema, done, fields, lags, notes)
        fields.finish(schema, done, notes)


def _with_lags(schema: Schema, done: Partition, fields: Fields, lags: int, notes: list[Note]) -> Schema:
    if not lags:
        return schema
    times, series = fields.times()
    schema = replace(schema, lags=lags, step=infer_step(times, series), time_kind=done.time_kind)
    groups = schema.with_times(replace(fields.bare(done), notes=notes), times, series, str(done.time_kind))
    fields.lagged = groups.lagged
    return schema


def _schema(done: Partition, notes: list[Note]) -> Schema:
    columns, vocabulary = done.roles.of("item"), None
    if columns:
        if done.items.names is None:
            said = f"Column {columns[0]!r} (role item) is null in every row. Name another column."
            raise DataError(said, column=columns[0])
        vocabulary = Vocabulary(done.items.names.sorted(), columns)
    levels = dict[str, tuple[str, ...]](done.levels)
    for name, known in done.levels.items():
        told = ", ".join(f"{k} for {level!r}" for k, level in enumerate(known))
        notes.append(Note("categories", f"Column {name!r} holds ordered categories, read as {told}.", column=name))
    for name in done.of_words:
        words = done.words[name]
        assert words.names is not None
        counts = dict(zip(words.names.tolist(), words.counts.tolist(), strict=True))
        levels[name], note = frequent(name, tuple(sorted(counts)), counts)
        notes.append(note)
    when = None if done.when_kind == NULL else done.when_kind
    return Schema(done.roles, vocabulary, levels=levels, when_kind=when)


def _folded(done: Partition, levels: Levels) -> list[str]:
    """Attributes of words of which some are none of the levels."""
    return [name for name in done.of_words if len(levels[name]) < len(done.words[name].known)]


def _joined(parts: Sequence[Sequence[Note]]) -> Iterator[Note]:
    """Of notes of one kind, the first."""
    told = dict[str, Note]()
    for note in (note for part in parts for note in part):
        told.setdefault(note.kind, note)
    for note in told.values():
        yield replace(note, text=f"In one of {len(parts)} parts, perhaps in others: {note.text}")


@final
class _Steps:
    """Whether rows follow each other now sooner, now later."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.uneven = False

    def see(self, between: np.ndarray) -> None:
        between = between[between > 0]
        if len(between):
            self.first = float(between[0]) if self.first is None else self.first
            self.uneven |= uneven(between) or float(between[0]) != self.first

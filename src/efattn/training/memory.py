"""What a training step takes, and what to do where that is more than there is.

    two streams    26 n t bytes (one layer: 14)      the rest, two layers: 64 heads n t, more: 16 heads n t

for the n rows of the longest group and t targets of it at a time: what was measured of a step, rounded down. Targets
of long groups are taken some at a time (network/stack.py), so that this is bounded; masks of n^2 are not. Parameters
are counted four times: weights, gradients and the optimiser's two moments.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from efattn.data import Groups
from efattn.errors import DataError, TrainingError, named, option
from efattn.models import Model, Term
from efattn.network.stack import LONG
from efattn.training_options import Training

SIGNS = ("allocate", "out of memory", "not enough memory", "size calculation overflowed")  # as torch puts it
COPIES, FLOAT = 4, 4
PAIRS = 4  # bytes for each pair of rows, whatever the targets: masks


class Longest(NamedTuple):
    """rows: of the longest piece; words: which group it is of."""

    rows: int
    words: str

    @classmethod
    def of(cls, data: Groups) -> "Longest":
        lengths = data.pieces.stop - data.pieces.start
        if not len(lengths):
            return cls(0, "")
        at = int(lengths.argmax())
        label = data.group_label(int(data.pieces.group[at]))
        return cls(int(lengths[at]), f" ({label})" if label else "")


def check(model: Model, data: Groups, options: Training, device: torch.device) -> None:
    """A DataError for what cannot fit, before anything is computed. The model may be one without memory of its own."""
    there, longest, draws = available(device), Longest.of(data), options.most_targets
    weights = sum(p.numel() for p in model.parameters()) * FLOAT * COPIES
    if weights > there:
        raise DataError(
            f"Training this network takes {_size(weights)} of memory for its weights alone, and there are "
            f"{_size(there)}. A smaller {named('width')} or fewer {named('layers')} would do.",
            option="width",
        )
    pair = max((per_pair(model[name]) for name in model.terms), default=0)
    targets = longest.rows if draws is None else min(draws, longest.rows)
    needed = min(pair * longest.rows * targets, 2 * LONG) + PAIRS * longest.rows**2 * (pair > 0) + weights
    if needed > there:
        remedies = _remedies(longest.rows, pair, there - weights, draws, options.cells)
        raise DataError(
            f"Training takes {_size(needed)} of memory, and there are {_size(there)}: the longest group has "
            f"{longest.rows:,} rows{longest.words}. {remedies}",
            option="max_length",
        )


def per_pair(term: object) -> int:
    """Bytes for each pair of a target and a row of its group; 0 where there is no attention."""
    if not isinstance(term, Term):
        return 0
    layers, heads = len(term.stack.blocks), term.stack.layers[0].attention.heads if len(term.stack.blocks) else 0
    if term.context == "any":
        return 52 if layers > 1 else 28 * layers  # content, and blanks of what is still to come
    if layers <= 1:
        return 14 * layers
    return 26 if term.context == "past" or term.stack.isolated else heads * (64 if layers == 2 else 16)


@contextlib.contextmanager
def told(data: Groups, options: Training, device: torch.device) -> Iterator[None]:
    """torch's failure to allocate, in words."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacking(error):
            raise
        longest = Longest.of(data)
        remedies = _remedies(longest.rows, 64, available(device), options.most_targets, options.cells)
        raise TrainingError(
            f"There is not enough memory for a training step: the longest group has {longest.rows:,} rows"
            f"{longest.words}. {remedies}",
            option="max_length",
        ) from error


def lacking(error: BaseException) -> bool:
    """Whether it is memory that is missing."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in SIGNS)


def _remedies(rows: int, pair: int, there: float, draws: int | None, tokens: int) -> str:
    """rows: of the longest group. Fewer tokens help only where a batch has room for several groups."""
    fits = max(int(math.sqrt(max(there, 0) / 2 / max(pair, 1))), 10)
    fits -= fits % 10 ** (len(str(fits)) - 1)  # one digit is enough
    fewer = 64 if draws is None else max(draws // 4, 1)
    tokens //= 4
    less = f"take fewer rows at a time with {option('tokens', tokens, of='Training')}, " if rows < tokens else ""
    return (
        f"Choose a smaller {named('width')}, {less}cut long groups with {option('max_length', min(fits, rows))}, or "
        f"score fewer targets at a time with {option('draws', fewer, of='Training')}."
    )


def available(device: torch.device) -> float:
    """Bytes that could be had now, as far as anybody says."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    limits = [math.inf]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float(min(limits))


def _size(number: float) -> str:
    return f"{number / 2**30:,.1f} GiB"

"""One fit by several processes, on one machine or many, each with a part of every batch.

    gradient of a batch = sum over processes of  grad sum_i w_i log p_i  over their groups of it  /  sum_i w_i over all

Every process plans the same batches and takes every so manyth group of each, so that the number of processes changes
nothing but rounding: a process without a group in a batch adds nothing. Sums of log-probabilities and of weights are
added in double precision. What is decided by a clock, or needs a file, is decided by the first process and told to the
others. Gradients are added in one buffer a step, which is less than torch's DistributedDataParallel asks for: that
takes means over processes, a module's forward and a part for everybody.

Initial weights, the order of batches and of targets are those of one process. Dropout, holes and drawn targets come
from a seed of (fit, epoch, batch, process): as likely as with one process, not the same, and known anew at each step,
so that a checkpoint holds nothing of any one process and may be resumed by another number of them.

torchrun, or whoever else starts the processes, says in the environment who is who. Messages travel by gloo, gradients
of a GPU by NCCL.
"""

import atexit
import datetime
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from efattn.errors import DataError, TrainingError, named, option

T = TypeVar("T")
PATIENCE = datetime.timedelta(days=1)  # as long as the first process may be busy with what the others wait for
SOON, LATE = 1.0, 5.0  # seconds that the first process, where it keeps count, gives the others to hear that it fails
FAILED = "failed"  # how many processes have said that they cannot go on


class Lost(TrainingError):
    """Another process is gone."""

    def advised(self, folder: str | None, epoch: int) -> "Lost":
        """The same with what to do. folder: where this process has just left a checkpoint."""
        if folder is None:
            return Lost(
                f"{self.text} Where there is a {named('checkpoint')}, {option('resume', True)} goes on from it."
            )
        kept = f"{option('checkpoint', folder)} holds where it stood, in epoch {epoch}"
        return Lost(f"{self.text} {kept}: go on with {option('resume', True)}.")


@final
class Team:
    """The processes of one fit, of which this is number `rank` of `size`."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """Whether it is the one that writes, shows and decides."""
        return self.rank == 0

    def part(self, several: Any) -> Any:
        """This process's share of an array or a list: where neighbours are alike, of about the size of the others'."""
        return several[self.rank :: self.size]

    def device(self, chosen: torch.device) -> torch.device:
        """On a machine with several GPUs, each process has its own."""
        if chosen.type != "cuda" or chosen.index is not None:
            return chosen
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)) % torch.cuda.device_count())

    def seed(self, *numbers: int) -> None:
        """Random numbers of this process from here on, which depend on nothing that was drawn before."""
        state = np.random.SeedSequence([*numbers, self.rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(state[0] >> np.uint64(1)))

    def sum(self, *numbers: Tensor | float, device: torch.device | str = "cpu") -> Tensor:
        """Of each number over all processes, in double precision."""
        mine = torch.stack([torch.as_tensor(x).detach().to(device, torch.float64) for x in numbers])
        with self._together():
            dist.all_reduce(mine, group=_group(mine.device))
        return mine

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Each parameter's gradient becomes the sum over all processes; none where nobody has one."""
        known = [p.grad is not None and p.grad.is_sparse == rows for rows in (False, True) for p in parameters]
        dense, sparse = self.sum(*map(float, known)).view(2, -1).tolist()  # how many processes have which
        for p, some, none in zip(parameters, sparse, dense, strict=True):
            if some and not none:
                p.grad = self._sum_of_rows(p)
        whole = [p for p, some in zip(parameters, dense, strict=True) if some]
        if whole:
            flat = torch.cat([_gradient(p).reshape(-1) for p in whole])
            with self._together():
                dist.all_reduce(flat, group=_group(flat.device))
            for p, gradient in zip(whole, flat.split([p.numel() for p in whole]), strict=True):
                p.grad = gradient.view_as(p)

    def _sum_of_rows(self, p: nn.Parameter) -> Tensor:
        """Of gradients of which each process has some rows, which alone travel."""
        mine = None if p.grad is None else p.grad.coalesce()
        rows = torch.zeros(0, dtype=torch.long, device=p.device) if mine is None else mine.indices()[0]
        values = p.detach().new_zeros(0, *p.shape[1:]) if mine is None else mine.values()
        counts = self.sum(*(len(rows) * (rank == self.rank) for rank in range(self.size))).long().tolist()
        found = []
        for x in (rows, values):
            padded = torch.cat([x, x.new_zeros(max(counts) - len(x), *x.shape[1:])])
            every = [torch.empty_like(padded) for _ in counts]
            with self._together():
                dist.all_gather(every, padded, group=_group(p.device))
            found.append(torch.cat([one[:count] for one, count in zip(every, counts, strict=True)]))
        return torch.sparse_coo_tensor(found[0][None], found[1], p.shape, check_invariants=False).coalesce()

    def share(self, tensors: Mapping[str, Tensor]) -> None:
        """Those of the first process become everybody's."""
        with self._together():
            for _, x in sorted(tensors.items()):
                dist.broadcast(x, 0, group=_group(x.device))

    def told(self, what: str, find: Callable[[], T]) -> T:
        """What the first process finds, alone; the others wait for it."""
        found: list[Any] = [None]
        if self.first:
            with _as(None):
                found = [(what, find())]
        with self._together():
            dist.broadcast_object_list(found, 0, group=_messages(), device=torch.device("cpu"))
        said, answer = found[0]
        if said != what:
            raise DataError(f"The {self.size} processes do not run the same fit: one is at {said}, another at {what}.")
        result: T = answer
        return result

    def agree(self, mine: Mapping[str, Any]) -> None:
        """A DataError where this process was given something else than the first."""
        theirs = self.told("what is fitted", lambda: dict(mine))
        wrong = [name for name, x in mine.items() if theirs[name] != x]
        if wrong:
            raise DataError(
                f"Process {self.rank} of {self.size} was given other {' and '.join(wrong)} than the first: the same "
                "table has to lie on every machine, under the same command."
            )

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Whatever goes wrong in a message, somebody does not answer any more."""
        try:
            yield
        except RuntimeError as error:
            raise Lost(
                f"Another of the {self.size} processes ended: it failed, was killed, or its machine cannot be reached."
            ) from error


def started() -> bool:
    """Whether somebody has started several processes that know of each other, of which this is one."""
    return dist.is_available() and (dist.is_initialized() or int(os.environ.get("WORLD_SIZE") or 1) > 1)


@contextmanager
def together() -> Iterator[Team | None]:
    """A fit in here is one fit of all processes that torchrun has started, and each of them has its result; None where
    this process was started alone."""
    if not started():
        yield None
        return
    if not dist.is_initialized():
        _join()
    _messages()
    team = Team(dist.get_rank(), dist.get_world_size()) if dist.get_world_size() > 1 else None
    with _as(team):
        yield team


def current() -> Team | None:
    """With whom to fit, if not alone."""
    return _current


def in_turn(work: Callable[[], T], wanted: bool) -> T:
    """Where any process wants it, the first of each machine does its work before the others do theirs, who find what
    it has left on disk."""
    if _current is None or not float(_current.sum(wanted)):
        return work()
    early = int(os.environ.get("LOCAL_RANK", _current.rank)) == 0
    found = [work()] if early else []
    _current.sum(0.0)
    return found[0] if early else work()


def fails_first(error: BaseException) -> bool:
    """Whether no other process has said that it fails, now that this one does: the rest have only lost it."""
    if not dist.is_initialized():
        return int(os.environ.get("RANK") or 0) == 0
    rank, size, store = dist.get_rank(), dist.get_world_size(), dist.distributed_c10d._get_default_store()
    try:
        number = int(store.add(FAILED, 1))
    except RuntimeError:  # the first process has kept count, and is gone
        return rank <= 1
    if rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        _leave()
        end = time.monotonic() + (SOON if isinstance(error, Lost) else LATE)
        while int(store.add(FAILED, 0)) < size and time.monotonic() < end:
            time.sleep(0.01)
    return number == 1


def seconds_since(start: float, team: Team | None) -> float:
    """By the clock of the first process."""
    passed = time.monotonic() - start
    return passed if team is None else float(team.sum(passed if team.first else 0.0))


def first() -> bool:
    """Whether this process writes, shows and decides: always, where it is alone."""
    return _current is None or _current.first


def told(what: str, find: Callable[[], T]) -> T:
    """What is found here, or by the first process of several."""
    return find() if _current is None else _current.told(what, find)


_current: Team | None = None


@contextmanager
def _as(team: Team | None) -> Iterator[None]:
    global _current
    before, _current = _current, team
    try:
        yield
    finally:
        _current = before


def _join() -> None:
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) <= torch.cuda.device_count():  # NCCL asks for a GPU each
            backend = "nccl"
    try:
        store, rank, size = next(dist.rendezvous("env://"))
        attempt = os.environ.get(
            "TORCHELASTIC_RESTART_COUNT", "0"
        )  # torchrun keeps the store, with dead addresses in it
        dist.init_process_group(backend, store=dist.PrefixStore(f"efattn/{attempt}", store), rank=rank, world_size=size)
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"RANK and WORLD_SIZE say that this is one of several processes, which do not find each other: "
            f"{str(error).splitlines()[0]} Start them by torchrun, or leave these variables out."
        ) from error
    atexit.register(_leave)


@functools.cache
def _messages() -> Any:
    """A group for what lies on the CPU, which waits for as long as it takes."""
    return dist.new_group(backend="gloo", timeout=PATIENCE)


def _gradient(p: nn.Parameter) -> Tensor:
    gradient = torch.zeros_like(p) if p.grad is None else p.grad
    return gradient.to_dense() if gradient.is_sparse else gradient


def _group(device: torch.device) -> Any:
    return _messages() if device.type == "cpu" else None


def _leave() -> None:
    """Whoever waits for this process hears that it is gone."""
    _messages.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()

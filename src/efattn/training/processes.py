"""Several fittings side by side, each in a process with one thread.

    side_by_side   so many at a time, each in a process of its own
    with_help      here, one after the other, while processes on idle cores take over those that are not begun yet

    here -> there: the fitting, pickled        there -> here: ticks and records as they come, then weights or an error

What travels in the pipe to and from a child of one's own is what the standard library's process pools send too; no file
and nothing from elsewhere is ever unpickled. A worker is a fresh interpreter: it needs no guard in the user's script,
and it ends when nobody listens any more. It is in a session of its own, so that Ctrl-C reaches this process only, which
then ends the workers.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, final

import torch

from efattn.errors import TrainingError, option
from efattn.training.loop import Fitting, Record

PROGRAM = "from efattn.training.processes import work; work()"
PAUSE = 0.2  # seconds between ticks
SOON = 2.0  # seconds after which a fit is long enough for help, which takes as long to start
MINE = 0.8  # share of a core that a fit gets where the machine has room for help
_END = object()


def fresh(program: str, *, own_session: bool) -> "subprocess.Popen[bytes]":
    """A new interpreter with one thread that runs a program and finds the modules which this one finds."""
    paths = os.pathsep.join(path for path in sys.path if path)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **threads, "PYTHONPATH": paths},
        start_new_session=own_session,
    )


def answer(program: str, question: Any) -> tuple[int, bytes]:
    """The exit code of such a program, and what it wrote to its channel. Ctrl-C reaches it as it reaches this one."""
    process = fresh(program, own_session=False)
    try:
        written, _ = process.communicate(pickle.dumps(question))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process.returncode, written


def asked() -> tuple[Any, BinaryIO]:
    """In such a program: the question, and the channel for what it says. What is printed goes to standard error."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    return pickle.load(sys.stdin.buffer), channel


def spare() -> int:
    """How many more processes may run beside this one: none where it is itself one of several, as OMP_NUM_THREADS=1
    says too."""
    if multiprocessing.parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return (min(cores, int(threads)) if threads.isdigit() else cores) - 1


def side_by_side(fittings: Mapping[int, Fitting], resume: bool, jobs: int) -> Generator[int]:
    """Run them, `jobs` at a time, and give the number of each when it is done. An interrupt ends all that are not, and
    marks them as interrupted; an error of one ends all and is raised."""
    team = _Team(fittings, resume)
    try:
        team.start(jobs)
        while team.running:
            yield from team.heard(1.0)
    except KeyboardInterrupt:
        team.interrupt()
    finally:
        team.end()


def with_help(
    fittings: Mapping[int, Fitting], resume: bool, helpers: int, meanwhile: Iterable[object] = ()
) -> Generator[int]:
    """Run them here, one after the other, and give the number of each when it is done. When that takes longer, and
    nobody else wants the cores, so many helpers run those that are not begun yet: the same numbers, sooner. What a
    helper cannot do for want of memory is done here. meanwhile: what else there is to do, piece by piece, and is done
    first where helpers are at work: what is left then is dealt out evenly."""
    team, done, pieces = _Team(fittings, resume, spared=True), list[int](), iter(meanwhile)
    began, worked = time.monotonic(), time.thread_time()

    def look_around(record: Record) -> None:
        nonlocal helpers, began, worked
        passed, mine = time.monotonic() - began, time.thread_time() - worked
        if helpers and team.waiting and passed > SOON:
            began, worked = began + passed, worked + mine  # where others are busy, look again later
            if mine > MINE * passed:
                team.start(helpers)
                helpers = 0
        done.extend(team.heard(0.0))

    try:
        while team.waiting or team.running:
            busy = bool(team.running) and next(pieces, _END) is not _END
            if team.waiting and not busy:
                done.append(team.run_here(look_around))
                busy = True
            done.extend(team.heard(0.0 if busy else 1.0))
            yield from (done.pop(0) for _ in range(len(done)))
    except KeyboardInterrupt:
        team.interrupt()
        yield from done
    finally:
        team.end()


@final
class _Team:
    """Workers, what they run, and what nobody runs yet. spared: it is done without a worker that dies."""

    def __init__(self, fittings: Mapping[int, Fitting], resume: bool, *, spared: bool = False) -> None:
        self.fittings, self.resume, self.spared = fittings, resume, spared
        self.waiting, self.running = deque(fittings), dict[int, _Worker]()
        self.messages: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()

    def start(self, workers: int) -> None:
        for _ in range(min(workers, len(self.waiting))):
            try:
                self.give(_Worker(self.messages))
            except OSError:
                if not self.spared:
                    raise

    def give(self, worker: "_Worker") -> None:
        """The next one, if there is one: the first, or the last where the first ones are run here."""
        if not self.waiting:
            worker.end()
            return
        number = self.waiting.pop() if self.spared else self.waiting.popleft()
        self.running[number] = worker
        worker.take(number, self.fittings[number], self.resume)

    def run_here(self, look_around: Any) -> int:
        number = self.waiting.popleft()
        fitting = self.fittings[number]
        callbacks, fitting.callbacks = fitting.callbacks, [*fitting.callbacks, look_around]
        try:
            fitting.run(self.resume)
        finally:
            fitting.callbacks = callbacks
        if fitting.interrupted:
            raise KeyboardInterrupt
        return number

    def heard(self, seconds: float) -> list[int]:
        """Take in what was said, waiting so long for a first word; the numbers of those that are done."""
        done = list[int]()
        while self.running:
            try:
                number, kind, what = self.messages.get(timeout=seconds) if seconds else self.messages.get_nowait()
            except queue.Empty:
                break
            seconds = 0.0
            if kind == "died" and self.spared:
                self.running.pop(number).end()
                self.waiting.appendleft(number)
                continue
            _hear(number, self.fittings[number], kind, what)
            if kind == "done":
                self.give(self.running.pop(number))
                done.append(number)
        return done

    def interrupt(self) -> None:
        for number in (*self.running, *self.waiting):
            self.fittings[number].interrupted = True

    def end(self) -> None:
        for worker in self.running.values():
            worker.end()


def _hear(number: int, fitting: Fitting, kind: str, what: Any) -> None:
    if kind == "tick" and fitting.tick is not None:
        fitting.tick(*what)
    elif kind == "epoch":
        for callback in fitting.callbacks:
            callback(what)
    elif kind == "done":
        weights, fitting.history[:] = what
        fitting.model.load_state_dict(weights)
        fitting.model.eval()
    elif kind == "error":
        raise what
    elif kind == "died":
        raise TrainingError(
            f"The process that trained member {number} ended with code {what}: perhaps there is not enough memory for "
            f"so many at a time. Try {option('jobs', 1, of='Training')}, or fewer jobs.",
            option="jobs",
        )


@final
class _Worker:
    """A process that runs one fitting after the other."""

    def __init__(self, messages: "queue.SimpleQueue[tuple[int, str, Any]]") -> None:
        self.process = fresh(PROGRAM, own_session=True)
        self.jobs: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self.listener = threading.Thread(target=_listen, args=(self.process, self.jobs, messages), daemon=True)
        self.listener.start()

    def take(self, number: int, fitting: Fitting, resume: bool) -> None:
        self.jobs.put((number, pickle.dumps((replace(fitting, callbacks=(), tick=None), resume))))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.jobs.put(None)
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _listen(process: "subprocess.Popen[bytes]", jobs: Any, messages: Any) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    while (given := jobs.get()) is not None:
        (number, job), kind = given, ""
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            process.stdin.write(job)
            process.stdin.flush()
            while kind not in ("done", "error"):
                kind, what = pickle.load(process.stdout)
                messages.put((number, kind, what))
        if kind not in ("done", "error"):
            messages.put((number, "died", process.wait()))


def work() -> None:
    """What a worker does."""
    (fitting, resume), channel = asked()
    while True:
        try:
            _run(fitting, resume, channel)
            fitting, resume = pickle.load(sys.stdin.buffer)
        except (BrokenPipeError, EOFError):
            os._exit(1)  # nobody listens
        except Exception as error:
            _send(channel, "error", _portable(error))
            return


def _run(fitting: Fitting, resume: bool, channel: BinaryIO) -> None:
    last = [0.0]

    def tick(*where: Any) -> None:
        if time.monotonic() - last[0] >= PAUSE:
            last[0] = time.monotonic()
            _send(channel, "tick", where)

    fitting.tick, fitting.callbacks = tick, [lambda record: _send(channel, "epoch", record)]
    fitting.run(resume)
    _send(channel, "done", (dict(fitting.model.state_dict()), fitting.history))


def _send(channel: BinaryIO, kind: str, what: Any) -> None:
    channel.write(pickle.dumps((kind, what)))
    channel.flush()


def _portable(error: Exception) -> Exception:
    """An error that survives the way, with what was wrong if not itself."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TrainingError(f"{type(error).__name__}: {error}")
    return error

"""Several fittings side by side, each in a process of its own with one thread.

    here -> there: the fitting, pickled        there -> here: ticks and records as they come, then weights or an error

What travels in the pipe to and from a child of one's own is what the standard library's process pools send too; no file
and nothing from elsewhere is ever unpickled. A worker is a fresh interpreter: it needs no guard in the user's script,
and it ends when nobody listens any more. It is in a session of its own, so that Ctrl-C reaches this process only, which
then ends the workers.
"""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, final

import torch

from efattn.errors import TrainingError, option
from efattn.training.loop import Fitting

PROGRAM = "from efattn.training.processes import work; work()"
PAUSE = 0.2  # seconds between ticks


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


def side_by_side(fittings: Mapping[int, Fitting], resume: bool, jobs: int) -> Generator[int]:
    """Run them, `jobs` at a time, and give the number of each when it is done. An interrupt ends all that are not, and
    marks them as interrupted; an error of one ends all and is raised."""
    messages: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()
    waiting, running = list(fittings), dict[int, _Worker]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                running[number] = _Worker.start(number, fittings[number], resume, messages)
            with contextlib.suppress(queue.Empty):
                number, kind, what = messages.get(timeout=1.0)
                _hear(number, fittings[number], kind, what)
                if kind == "done":
                    running.pop(number).end()
                    yield number
    except KeyboardInterrupt:
        for number in (*running, *waiting):
            fittings[number].interrupted = True
    finally:
        for worker in running.values():
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
@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    listener: threading.Thread

    @classmethod
    def start(cls, number: int, fitting: Fitting, resume: bool, messages: Any) -> "_Worker":
        job = pickle.dumps((replace(fitting, callbacks=(), tick=None), resume))
        process = fresh(PROGRAM, own_session=True)
        listener = threading.Thread(target=_listen, args=(number, process, job, messages), daemon=True)
        listener.start()
        return cls(process, listener)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _listen(number: int, process: "subprocess.Popen[bytes]", job: bytes, messages: Any) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    kind = ""
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
    try:
        _run(fitting, resume, channel)
    except BrokenPipeError:
        os._exit(1)  # nobody listens
    except Exception as error:
        _send(channel, "error", _portable(error))


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

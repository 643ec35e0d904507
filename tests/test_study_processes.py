"""Processes of a study."""

import os
import subprocess
import sys
import time

import pytest

ORPHANS = """
import os, pathlib, sys, time
from efattn.experiments import pool

def work(name):
    pathlib.Path(sys.argv[1], f"{name}.pid").write_text(str(os.getpid()))
    time.sleep(300)

if __name__ == "__main__":
    list(pool.each(work, ["a", "b"], 2))
"""


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_processes_end_with_the_one_that_is_killed(tmp_path):
    (tmp_path / "main.py").write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, tmp_path / "main.py", tmp_path], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while len(pids := [int(x) for path in tmp_path.glob("*.pid") if (x := path.read_text())]) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    while not all(map(gone, pids)):
        assert time.monotonic() < end
        time.sleep(0.1)

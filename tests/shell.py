"""The installed command in a real process; and, for the many small mistakes, processes forked from one that has
imported torch already, so that each costs no two seconds."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

EFATTN = Path(sys.executable).parent / "efattn"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160", "NO_COLOR": "1"}
BRIEF = ["--epochs", "2", "--width", "8", "--device", "cpu", "--no-compare", "--validation", "0.2"]  # of any model
QUICK = [*BRIEF, "--companions", "none", "--no-refit"]
SERVER = """
import json, os, sys
import torch, torch._dynamo, efattn.estimators, efattn.cli  # the compiler, because optimisers load it
torch.set_num_threads(1)
import gc, rich.console, rich.table, typer.rich_utils, scipy.stats, scipy.special
gc.collect(); gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(asked["cwd"])
        for number, name in enumerate(("in", "out", "err")):
            flags = os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(os.path.join(asked["files"], name), flags, 0o600), number)
        sys.stdin = open(0)
        sys.argv = ["efattn", *asked["words"]]
        try:
            efattn.cli.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 99
        sys.stdout.flush()
        os._exit(code)
    os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)

    def good(self):
        assert self.code == 0, self
        return self


def efattn(*words, cwd=None, stdin=None, **environment):
    """The installed command."""
    done = subprocess.run(
        [EFATTN, *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=900,
        env={**ENVIRONMENT, **environment},
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


_SERVERS = []


def forked(*words, cwd, stdin=b""):
    """The same entry point in a process of its own that need not import torch."""
    if not _SERVERS:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
        _SERVERS.append(subprocess.Popen([sys.executable, "-c", SERVER], **pipes))
        atexit.register(_SERVERS[0].kill)
    server = _SERVERS[0]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").write_bytes(stdin)
        asked = {"cwd": str(cwd), "files": folder, "words": [str(word) for word in words]}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return Answer(code, (Path(folder) / "out").read_text(), (Path(folder) / "err").read_text())

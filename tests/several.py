"""Several processes that know of each other, as torchrun starts them, forked from one that has imported torch."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from shell import ENVIRONMENT

HERE = Path(__file__).parent
SERVER = """
import json, os, sys, traceback
import torch, torch.distributed, efattn.estimators, efattn.cli, efattn.training.teams
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import teamwork
import gc, sympy, narwhals._polars.dataframe  # which torch and a first fit load
gc.collect(); gc.freeze()
for line in sys.stdin:
    asked, children = json.loads(line), []
    for rank in range(asked["processes"]):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.chdir(asked["cwd"])
        for number, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(f"{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.environ.update(asked["environment"], RANK=str(rank), LOCAL_RANK=str(rank))
        code = 0
        try:
            if asked["work"] is None:
                sys.argv = ["efattn", *asked["words"]]
                efattn.cli.main()
            else:
                getattr(teamwork, asked["work"])(*asked["words"])
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            code = 99
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    os.write(1, (json.dumps(children) + "\\n").encode())
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.write(1, (json.dumps(codes) + "\\n").encode())
"""


class Ended(NamedTuple):
    """Of each process: its exit code, and what it wrote."""

    codes: list[int]
    out: list[str]
    err: list[str]


class Server:
    def __init__(self):
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "text": True,
            "env": {**ENVIRONMENT, "TORCH_CPP_LOG_LEVEL": "ERROR"},
        }
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(HERE)], **pipes)

    def start(self, cwd, *words, work=None, processes=2, **environment):
        """The ids of processes that run a function of teamwork.py, or the command line where none is named."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
        self.cwd, self.processes = Path(cwd), processes
        asked = {"cwd": str(cwd), "words": list(map(str, words)), "work": work, "processes": processes}
        self.process.stdin.write(json.dumps(asked | {"environment": known | environment}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ended(self):
        codes = json.loads(self.process.stdout.readline())
        texts = [[(self.cwd / f"{name}.{k}").read_text() for k in range(self.processes)] for name in ("out", "err")]
        return Ended(codes, *texts)

    def run(self, *asked, **how):
        self.start(*asked, **how)
        return self.ended()

    def close(self):
        self.process.kill()
        self.process.communicate()

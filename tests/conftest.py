"""One thread per process: the tests are small, and pytest-xdist uses the cores."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch

torch.set_num_threads(1)

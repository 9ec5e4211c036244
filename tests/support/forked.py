"""Programs in processes of their own that need not import torch and fastgemm, which takes more than a second:
they are forks of one process that has, and does nothing else. They end as any program of Python does."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from processes import run_python

SERVER = """
import gc, json, os, sys, torch, fastgemm
gc.freeze()  # a child that ends would copy every page else
for request in sys.stdin:
    code, output, errors = json.loads(request)
    if (child := os.fork()) == 0:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
        exec(code, {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    server = subprocess.Popen([sys.executable, "-c", SERVER], env=env, **pipes)
    atexit.register(server.kill)
    return server


def run_forked(code: str) -> subprocess.CompletedProcess:
    """As ``run_python(["-c", code])``, of a program that may find torch and fastgemm imported."""
    if torch.cuda.is_available():  # which does not survive a fork
        return run_python(["-c", code])
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "stdout"), Path(folder, "stderr")
        try:
            print(json.dumps([code, str(output), str(errors)]), file=server.stdin, flush=True)
            status = int(server.stdout.readline())
        except BaseException:  # such as the end of the test's time: it would answer the next test
            server.kill()
            _server.cache_clear()
            raise
        return subprocess.CompletedProcess([code], status, output.read_text(), errors.read_text())

"""Runs programs that get Ctrl-C while they compute."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOON = 30  # seconds, also on a busy machine
BEFORE = 1  # second that a program computes before it is interrupted


def interrupted(code: str, cwd: Path | None = None, **environment: str) -> tuple[int, str]:
    """Runs a Python program that prints "ready", computes, and gets SIGINT. Returns its exit code and
    stderr."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], cwd=cwd, env=env, **pipes) as program:
        try:
            assert program.stdout.readline() == "ready\n", program.stderr.read()
            time.sleep(BEFORE)
            assert program.poll() is None, program.stderr.read()
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            pytest.fail(f"went on for {SOON} s")
        finally:
            program.kill()
        return program.returncode, errors

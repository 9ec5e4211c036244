"""Processes that run checks together as the ranks of a torch.distributed process group.

They are started once and kept, because starting takes seconds. If a rank does not answer, all are ended: it
may wait in a collective for a rank that failed. The next check starts new ones.
"""

import multiprocessing
import multiprocessing.connection
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

START_SECONDS = CHECK_SECONDS = 150  # a busy machine imports torch slowly; both are less than a test's limit
GRACE_SECONDS = 3  # for the other ranks after one has failed
# Otherwise gloo looks up the host's name, which fails without a network.
LOOPBACK = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)


def _serve(rank: int, count: int, device: str, store: str, pipe: Any) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    elif LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=CHECK_SECONDS),
    )
    pipe.send(None)
    while (task := pipe.recv()) is not None:
        check, arguments, seed = task
        torch.manual_seed(seed)  # every rank draws the same data
        try:
            check(*arguments)
            pipe.send(None)
        except BaseException:
            pipe.send(traceback.format_exc())
    dist.destroy_process_group()
    os._exit(0)  # as in examples/tensor_parallel.py, for the same reason


class Ranks:
    """``count`` processes for one kind of device. ``run`` calls a function in all of them."""

    def __init__(self, count: int, device: str):
        self.count, self.device = count, device
        self._folder = tempfile.TemporaryDirectory(prefix="fastgemm-ranks-")
        self._processes: list[Any] = []
        self._pipes: list[Any] = []

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")  # imports torch once for all ranks
        context.set_forkserver_preload(["torch.distributed"])
        store = os.path.join(self._folder.name, str(time.monotonic_ns()))
        for rank in range(self.count):
            pipe, other = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, self.count, self.device, store, other), daemon=True
            )
            process.start()
            self._processes.append(process)
            self._pipes.append(pipe)
        self._collect(START_SECONDS)

    def run(self, check: Callable[..., None], *arguments: Any) -> None:
        """Calls ``check(*arguments)`` on every rank. Raises AssertionError with the messages of the ranks
        that failed."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((check, arguments, torch.initial_seed()))
        self._collect(CHECK_SECONDS)

    def _collect(self, seconds: float) -> None:
        start, deadline = time.monotonic(), time.monotonic() + seconds
        waiting, failures, in_step = dict(enumerate(self._pipes)), [], True
        while waiting and time.monotonic() < deadline:
            multiprocessing.connection.wait(waiting.values(), deadline - time.monotonic())
            for rank, pipe in list(waiting.items()):
                if not pipe.poll():
                    continue
                del waiting[rank]
                try:
                    said = pipe.recv()
                except EOFError:
                    said, in_step = "the process has ended\n", False
                if said is not None:
                    failures.append(f"rank {rank}: {said}")
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        failures += [f"rank {rank}: no answer in {time.monotonic() - start:.0f} s" for rank in waiting]
        if waiting or not in_step:
            self.stop(kill=True)
        if failures:
            raise AssertionError("\n".join(failures))

    def stop(self, kill: bool = False) -> None:
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            if kill:
                process.kill()
            else:
                pipe.send(None)
        for process in self._processes:
            process.join(GRACE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes, self._pipes = [], []

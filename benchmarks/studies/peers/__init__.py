"""Compares this library with what users of torch could use instead. This is the preset peers of run.py.

contenders     the products, and the contenders for each
prepared       a contender that is ready to be called; one that cannot run says why
own            this library, torch.matmul and torch.compile; vendor: cuBLAS' emulated modes
with_triton    a plain autotuned kernel (triton_kernel); with_jax: JAX's dot algorithms
study          sets up, checks and times all of them in one process; table: the printed table
"""

from .contenders import PRESET
from .study import run_peers

__all__ = ["PRESET", "run_peers"]

"""What a user of torch would pick instead of this library, measured beside it: the preset peers of run.py.

contenders     which products are compared, and by what
prepared       a contender made ready to be called; what cannot run says why
own            this library, torch.matmul and torch.compile; vendor: cuBLAS' emulated modes
with_triton    a plain autotuned kernel (triton_kernel); with_jax: JAX's dot algorithms
study          set-up, check and time of all of them, in one process; table: what is printed of it
"""

from .contenders import PRESET
from .study import run_peers

__all__ = ["PRESET", "run_peers"]

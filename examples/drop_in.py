"""An existing model whose products fastgemm computes. The model is not changed.

python examples/drop_in.py
"""

import fastgemm
import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 10))
x = torch.randn(64, 256)
expected = model(x)

with fastgemm.patch() as routed:  # for a block and a thread; fastgemm.enable() is for the whole process
    y = model(x)
    y.sum().backward()

print("products of the block, forward and backward:", dict(routed.ops))
print("kernels that computed them:", dict(routed.kernels))
print(f"largest difference to torch: {(y - expected).abs().max():.1e}")

"""Tests compiled autograd: the backward pass of eager calls becomes one graph, without a graph break."""

from functools import partial

import fastgemm
import pytest
import torch
from fastgemm import nn
from reference import every_device
from torch._dynamo import compiled_autograd

CALLS = {
    "matmul": (fastgemm.matmul, (3, 4), (4, 5)),
    "with a vector": (fastgemm.matmul, (2, 3, 4), (4,)),
    "broadcast": (fastgemm.matmul, (2, 1, 3, 4), (5, 4, 5)),
    "one matrix for a batch": (fastgemm.matmul, (2, 3, 4), (4, 5)),
    "gemm": (partial(fastgemm.gemm, alpha=2, beta=3, trans_a=True, level=2), (4, 3), (4, 5), (5,)),
    "conjugates": (lambda a, b: fastgemm.matmul(*map(torch.complex, (a, b), (b, a))).abs(), (4, 4), (4, 4)),
    "nn.linear": (nn.linear, (2, 3, 4), (5, 4), (5,)),
    "copied rows": (lambda x, w, b: nn.linear(x.transpose(0, 1), w, b), (2, 3, 4), (5, 4), (5,)),
    "conv1d": (nn.conv1d, (2, 3, 4), (4, 5), (5,)),
    "relu": (partial(fastgemm.linear, activation="relu"), (2, 3, 4), (5, 4), (5,)),
    "gelu": (partial(fastgemm.linear, activation="gelu"), (2, 3, 4), (5, 4), (5,)),
    "residual": (lambda x, w, r: fastgemm.linear(x, w, residual=r), (2, 3, 4), (5, 4), (2, 3, 5)),
}


@every_device
@pytest.mark.parametrize("call", CALLS)
def test_the_backward_pass_is_one_graph(call):
    function, *shapes = CALLS[call]
    torch._dynamo.reset()
    for times in (1, 2):  # sizes that change become symbols
        tensors = [torch.randn([n if n == 1 else n * times for n in shape]) for shape in shapes]
        tensors = [x.requires_grad_() for x in tensors]
        expected = torch.autograd.grad(function(*tensors).square().sum(), tensors)
        with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
            function(*tensors).square().sum().backward()
        torch.testing.assert_close([x.grad for x in tensors], list(expected))

"""Tests wrong uses of the API and of the command line. Each message begins with the called function or with the
command's "Error". It names the wrong value, and the accepted values or a remedy.

    python tests/python/test_wrong_uses.py    prints them all, as a table
"""

import re

import fastgemm
import pytest
import torch
from click.testing import CliRunner
from fastgemm.cli import main

LEVELS, WORDS = "1 to 7 or None", "an int or None"
PRECISIONS = "'ieee', 'tf32', 'bf16x3', 'bf16x6', 'fp16x3'"
OPS = "'gemm', 'transpose', 'add'"
# tests/torch/test_bad_input.py has more calls of products, transposes and sums.
# The call, the message's words about the given value, and its words about accepted values or a remedy.
API = [
    ("fastgemm.matmul(a, a)", "a is (3, 4), b is (3, 4)", "inner sizes"),
    ("fastgemm.matmul(a.to_sparse(), b)", "layout torch.sparse_coo", "only dense"),
    ("fastgemm.matmul(quantized, b)", "is quantized", "dequantize it or use int8"),
    ("fastgemm.matmul(a, b, kernel='bf16x6')", "'bf16x6' for gemm on cpu", "on cuda there is one"),
    ("fastgemm.gemm(a, b, level=True)", "got bool", WORDS),
    ("fastgemm.grouped_mm(a, b)", "offs", "must be given unless"),
    ("fastgemm.grouped_mm(a, b, torch.tensor([1]))", "torch.int64", "expected torch.int32"),
    ("fastgemm.grouped_mm(a, b, torch.tensor([5]).int())", "offs[0] is 5", "not exceed 4"),
    ("fastgemm.moe(a, b, a, a, a)", "got shape (4, 5)", "must have 3 dimensions"),
    ("fastgemm.gemm(a, b, symmetric=True)", "(3, 5)", "for square results"),
    ("fastgemm.gemm(square, square, kernel='symmetric')", "'symmetric' cannot run", "symmetric=True"),
    ("fastgemm.gemm(square, square, symmetric=True, kernel='naive_by_torch')", "by_torch'", "lists all"),
    ("fastgemm.gemm(square, square, symmetric=True, invariant=True)", "symmetric=True", "exclude each other"),
    ("fastgemm.matmul(a, b, invariant=True, level=3)", "level 3", "levels that have one: 1, 6 and 7"),
    ("fastgemm.matmul(a, b, invariant=True, kernel='simd')", "'simd'", "kernels for it: 'invariant'"),
    ("fastgemm.matmul(a, b, invariant=True, precision='fp16x3')", "'fp16x3'", "accepted: 'ieee', 'bf16x6'"),
    ("fastgemm.gemm(a, b, invariant=True, level=5)", "level 5", "levels that have one: 1, 6 and 7"),
    ("fastgemm.nn.convert(layer, invariant=True, level=2)", "level 2", "levels that have one: 1, 6 and 7"),
    ("fastgemm.patch(invariant=True, kernel='simd')", "'simd'", "kernels for it: 'invariant'"),
    ("fastgemm.linear(3, b)", "got int", "x must be a torch.Tensor"),
    ("fastgemm.linear(a, a, [1.0])", "got list", "bias must be a torch.Tensor"),
    ("fastgemm.linear(torch.tensor(1.0), a)", "got 0", "x must have at least 1 dimension"),
    ("fastgemm.linear(a, b)", "has 4 features", "weight (4, 5) takes 5"),
    ("fastgemm.linear(a, torch.ones(4))", "got shape (4,)", "weight must have 2 dimensions (N, K)"),
    ("fastgemm.linear(a, a.double())", "weight has dtype torch.float64", "must be equal"),
    ("fastgemm.linear(a.int(), a.int())", "has dtype torch.int32", "fastgemm.matmul also multiplies"),
    ("fastgemm.linear(a, a, torch.ones(4))", "bias has shape (4,)", "expected (3,)"),
    ("fastgemm.linear(a, a, torch.ones(3).double())", "torch.float64", "expected that of input"),
    ("fastgemm.linear(a, a, residual=torch.ones(3, 4))", "residual has shape (3, 4)", "the result, (3, 3)"),
    ("fastgemm.linear(a, a, residual=torch.ones(3, 3).half())", "torch.float16", "that of the result"),
    ("fastgemm.linear(a, a, activation='tanh')", "'tanh'", "accepted: 'relu', 'gelu'"),
    ("fastgemm.linear(a, a, activation=3)", "got int", "a str or None"),
    ("fastgemm.linear(a, a, out_dtype=torch.float64)", "out_dtype=torch.float64", "accepted: torch.float32"),
    ("fastgemm.linear(a, a, level=9)", "got 9", LEVELS),
    ("fastgemm.linear(a, a, kernel='zzzzqqq')", "'zzzzqqq' for gemm", "fastgemm.kernels lists all"),
    ("fastgemm.linear(a, a, precision='high')", "got 'high'", PRECISIONS),
    ("fastgemm.nn.Linear(4, 4, activation='tanh')", "'tanh'", "accepted: 'relu'"),
    ("fastgemm.nn.linear(a, a, level=9)", "got 9", LEVELS),
    ("fastgemm.nn.linear(a, a, kernel='naive', level=2)", "'naive'", "of level 1, not 2"),
    ("fastgemm.nn.conv1d(a, b, level=9)", "got 9", LEVELS),
    ("fastgemm.kernels('conv')", "got 'conv'", OPS),
    ("fastgemm.kernels(device='gpu')", "got 'gpu'", "'cpu', 'cuda' or None"),
    ("fastgemm.kernels(device=3.5)", "got 3.5", "'cpu', 'cuda' or None"),
    ("fastgemm.kernels(dtype='float32')", "got 'float32'", "a torch.dtype or None"),
    ("fastgemm.explain('conv', shape=(8, 8))", "got 'conv'", "'gemm', 'transpose' or 'add'"),
    ("fastgemm.explain('gemm', shape=(8, 8))", "got (8, 8)", "3 positive sizes (M, N, K)"),
    ("fastgemm.explain('gemm', shape=(8, 8, 8), gpu='zz')", "'zz'", "known: A100, H100, H200"),
    ("fastgemm.explain('gemm', level=9, shape=(8, 8, 8))", "got 9", LEVELS),
    ("fastgemm.explain('gemm', level=True, shape=(8, 8, 8))", "got bool", WORDS),
    ("fastgemm.explain('gemm', shape=(8, 8, 8), dtype='float32')", "dtype", "torch.dtype"),
    ("fastgemm.explain('gemm', shape=(8, 8, 8), dtype=torch.complex64)", "complex64", "one of real numbers"),
    ("fastgemm.explain('add', shape=(8, 8), dtype=torch.complex128)", "complex128", "one of real numbers"),
    ("fastgemm.explain('add', shape=(8, 0))", "(8, 0)", "2 positive sizes (R, C)"),
    ("fastgemm.explain('add', shape=8)", "got 8", "2 positive sizes (R, C)"),
    ("fastgemm.explain('transpose', shape=(8, 8), trans_a=True)", "not to transpose", "belong to gemm"),
    ("fastgemm.explain('add', shape=(8, 8), weight='int4')", "not to add", "belongs to gemm"),
    ("fastgemm.explain('gemm', shape=(8, 8, 8), weight='int3')", "unknown format", "accepted: int4"),
    ("fastgemm.patch(level=9)", "got 9", LEVELS),
    ("fastgemm.patch(level=True)", "got bool", WORDS),
    ("fastgemm.patch(kernel='zz')", "'zz'", "fastgemm.kernels('gemm') has all"),
    ("fastgemm.enable(kernel='zz')", "'zz'", "fastgemm.kernels('gemm') has all"),
    ("fastgemm.enable(precision='high')", "got 'high'", "ieee, tf32, bf16x3"),
    ("fastgemm.autotune(a, op='gemm')", "op='gemm'", "takes two operands"),
    ("fastgemm.autotune(a, a)", "a is (3, 4), b is (3, 4)", "inner sizes"),
    ("fastgemm.autotune(a, b, budget='1')", "got str", "budget must be a number of seconds"),
    ("fastgemm.autotune(a, b, budget=None)", "got NoneType", "budget must be a number of seconds"),
    ("fastgemm.autotune(a, weight)", "b is a QuantizedWeight", "pass the tensors that it multiplies"),
    ("fastgemm.tune(seconds='1')", "got str", "seconds must be a number of seconds"),
    ("fastgemm.tune(seconds=0)", "got 0", "a positive number"),
    ("fastgemm.tune(dtypes='float32')", "got 'float32' alone", "a list of types or their names"),
    ("fastgemm.tune(dtypes=torch.int8)", "got torch.int8 alone", "a list of types or their names"),
    ("fastgemm.tune(dtypes=[], device='cpu')", "at least one", "None stands for all"),
    ("fastgemm.tuning.limit_workspace(-1)", "got -1", "at least 0 bytes or None"),
    ("fastgemm.tuning.limit_workspace(2**70)", "got 1180591620717411303424", "and below 2**63"),
    ("fastgemm.tuning.limit_workspace('a')", "got str", "an int or None"),
    ("fastgemm.tuning.limit_workspace(1.5)", "got float", "an int or None"),
    ("fastgemm.tuning.limit_workspace(True)", "got bool", "an int or None"),
    ("fastgemm.nn.convert([1])", "got list", "a torch.nn.Module"),
    ("fastgemm.nn.convert(layer, level=True)", "got bool", WORDS),
    ("fastgemm.nn.convert(layer, kernel='nothing')", "'nothing'", "fastgemm.kernels('gemm') has all"),
    ("fastgemm.nn.convert(layer, fuse=True)", "'fuse'", "fastgemm.nn.fuse(model)"),
    ("fastgemm.nn.convert(layer, fused=True)", "unexpected keyword argument", "'fused'"),
    ("fastgemm.nn.revert(None)", "got NoneType", "a torch.nn.Module"),
    ("fastgemm.nn.fuse([layer])", "got list", "a torch.nn.Module"),
    ("fastgemm.nn.fuse(layer, level=8)", "got 8", LEVELS),
    ("fastgemm.nn.Linear(4, 4, level=True)", "got bool", WORDS),
    ("fastgemm.nn.Linear(4, 4, level=9)", "got 9", LEVELS),
]
COMMANDS = [
    ("fastgemm bench --shape abc", "'abc'", "512x512x512"),
    ("fastgemm bench --shape 8x8x8x8x8", "got 8x8x8x8x8", "MxNxK"),
    ("fastgemm bench 512", "512", "sizes stand behind --shape"),
    ("fastgemm bench --dtype float8", "'float8'", "float64, float32"),
    ("fastgemm bench --level 8", "8 is not in the range", "1<=x<=7"),
    ("fastgemm bench --kernel fastest", "'fastest' is no kernel of gemm", "info --kernels lists all"),
    ("fastgemm bench --kernel microkernal", "'microkernal' is no kernel", "did you mean microkernel?"),
    (
        "fastgemm bench --kernel dequantized --device cpu",
        "packed weights, groups or fp8 only",
        "info --kernels lists all",
    ),
    ("fastgemm explain gemm --kernel grouped_mma", "for groups or fp8 only", "info --kernels lists all"),
    ("fastgemm bench --kernel padded", "'padded' is no kernel of gemm", "it is one of transpose"),
    ("fastgemm bench --op add --tune", "not add", "--tune measures gemm and transpose"),
    ("fastgemm bench --precision fp8", "'fp8'", "'ieee', 'tf32'"),
    ("fastgemm bench --precision tf32", "--precision", "for gemm in float32 on a GPU"),
    ("fastgemm bench --op transpose --layout NT", "--layout", "for gemm"),
    ("fastgemm bench --plot x.bmp", "'.bmp' cannot be written", ".png, .svg, .pdf"),
    ("fastgemm bench --json nowhere/x.json", "nowhere", "the folder"),
    ("fastgemm bench --budget nan", "'nan'", "number of seconds"),
    ("fastgemm bench --budget 0", "0", "--budget"),
    ("fastgemm bench --device gpu", "'gpu'", "'cpu', 'cuda'"),
    ("fastgemm bench --preset squares2", "'squares2'", "'squares', 'small'"),
    ("fastgemm bench --op transpose --preset transformers", "transformers", "only products"),
    ("fastgemm ladder --level 9", "--level", "No such option"),
    ("fastgemm ladder --size 0", "0 is not in the range", "1<=x"),
    ("fastgemm ladder --op conv", "'conv'", OPS),
    ("fastgemm ladder --shape 4x4x4", "--shape", "needs one --op"),
    ("fastgemm ladder --shape 4 --size 4", "--size", "exclude each other"),
    ("fastgemm ladder --op gemm --shape 4x4", "4x4", "MxNxK"),
    ("fastgemm ladder --op gemm --shape 4x0x4", "4x0x4", "positive sizes"),
    ("fastgemm ladder --threads 0", "--threads", "0 is not in the range"),
    ("fastgemm ladder --dtype complex128", "complex128", "gemm takes"),
    ("fastgemm ladder --precision tf32", "--precision", "for gemm in float32 on a GPU"),
    ("fastgemm ladder --json no/such/folder/r.json", "no/such/folder", "does not exist"),
    ("fastgemm ladder --plot x.bmp", "'.bmp' cannot be written", ".png, .svg, .pdf"),
    ("fastgemm explain", "Missing argument", "gemm"),
    ("fastgemm explain conv", "'conv'", OPS),
    ("fastgemm explain gemm 512 512", "512", "sizes stand behind --shape"),
    ("fastgemm explain gemm --level 9", "9 is not in the range", "1<=x<=7"),
    ("fastgemm explain gemm --level 1 --kernel tiled", "--kernel", "exclude each other"),
    ("fastgemm explain gemm --kernel nothing", "'nothing'", "fastgemm info --kernels lists all"),
    ("fastgemm explain gemm --kernel cublaslt_1", "is a library's", "which the simulator does not run"),
    ("fastgemm explain gemm --kernel simd", "simd", "bench --op gemm --device cpu --kernel simd times it"),
    ("fastgemm explain gemm --compare packd", "'packd' is no kernel of gemm", "for --compare"),
    ("fastgemm explain gemm --dtype complex128", "complex128", "takes"),
    ("fastgemm explain gemm --shape 8x8", "got 2 sizes", "M N K or a single size"),
    ("fastgemm explain gemm --shape 64 64 0", "0", "positive"),
    ("fastgemm explain gemm --gpu H300", "unknown gpu 'H300'", "did you mean 'H200'"),
    ("fastgemm explain gemm --plot x.bmp", "'.bmp' cannot be written", ".png, .svg, .pdf"),
    ("fastgemm explain gemm --plot nowhere/x.svg", "nowhere", "the folder"),
    ("fastgemm explain add --trans-a", "--trans-a", "belong to gemm"),
    ("fastgemm explain transpose --precision tf32 --shape 8", "--precision", "belong to gemm"),
    ("fastgemm explain add --weight int4 --shape 8", "--weight", "belong to gemm"),
    ("fastgemm tune --seconds 0", "0.0 is not in the range", "x>0"),
    ("fastgemm tune --seconds nan", "nan", "--seconds"),
    ("fastgemm tune --dtype complex128", "complex128", "gemm takes"),
    ("fastgemm tune --forget --json x.json", "--forget", "goes alone"),
    ("fastgemm tune --forget --dtype int8", "--forget", "goes alone"),
    ("fastgemm tune --json no/such/folder/r.json", "no/such/folder", "does not exist"),
    ("fastgemm lader", "'lader'", "Did you mean 'ladder'?"),
    ("fastgemm info --yaml", "'--yaml'", "No such option"),
    ("fastgemm info more", "more", "unexpected extra argument"),
    ("fastgemm info --kernels --json", "--kernels", "exclude each other"),
    ("fastgemm info --bug-report --json", "--bug-report", "exclude each other"),
]


def message(use: str) -> str:
    """The message of a wrong use, after the error's type or the exit code."""
    if use.startswith("fastgemm "):
        result = CliRunner().invoke(main, use.split()[1:])
        return f"{result.exit_code}: {result.stderr[result.stderr.rfind('Error:') :]}".strip()
    a, b, square = torch.ones(3, 4), torch.ones(4, 5), torch.ones(4, 4)
    names = {"a": a, "b": b, "square": square, "grown": square.clone().requires_grad_()}
    names["layer"] = torch.nn.Linear(4, 4)
    if "weight)" in use:
        names["weight"] = fastgemm.quantize_weight(torch.ones(16, 32), "int8")
    if "quantized" in use:
        names["quantized"] = torch.quantize_per_tensor(a, 0.1, 0, torch.quint8)
    try:
        eval(use, {"fastgemm": fastgemm, "torch": torch}, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{use} is no wrong use")


@pytest.mark.parametrize(("use", "came", "accepted"), API, ids=[use for use, *_ in API])
def test_wrong_use_of_the_api(use, came, accepted):
    kinds = r"TypeError|ValueError|RuntimeError|NotImplementedError"
    if re.fullmatch("got (bool|int|float|str|list|NoneType)", came):
        kinds = "TypeError"
    said = message(use)
    assert re.match(rf"({kinds}): {re.escape(use.partition('(')[0])}: ", said), said
    assert came in said and accepted in said, said


@pytest.mark.parametrize(("use", "came", "accepted"), COMMANDS, ids=[use for use, *_ in COMMANDS])
def test_wrong_use_of_a_command(use, came, accepted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastgemm.cli.options.best_device", lambda: "cpu")  # independent of the machine
    said = message(use)
    assert said.startswith("2: Error: "), said
    assert came in said and accepted in said, said


if __name__ == "__main__":
    print("| use | what it says |\n| --- | --- |")
    for wrong, *_ in API + COMMANDS:
        print(f"| `{wrong}` | {' '.join(message(wrong).split()).replace('|', chr(92) + '|')} |")

"""Tests torch.profiler and NVTX: they must show the op, and inside it the kernel that ran."""

import os
import subprocess
import sys
from pathlib import Path

import fastgemm
import pytest
import torch
from reference import DEVICES, LEVEL, by_name, every_device, kernels_that_ran, refusal_allowed, row_id, rows
from torch.profiler import ProfilerActivity, profile


@pytest.mark.parametrize(
    ("device", "kernel", "dtype"), [row for row in rows("gemm") if row[2] == torch.float32], ids=row_id
)
def test_the_kernel_asked_for_is_the_kernel_named(device, kernel, dtype):
    a, b = torch.randn(64, 32), torch.randn(32, 48)
    choice = by_name(kernel, dtype)
    with refusal_allowed("gemm", device, kernel):
        fastgemm.matmul(a, b, **choice)
        assert kernels_that_ran(lambda: fastgemm.matmul(a, b, **choice)) == [kernel]


@every_device
def test_ranges_lie_inside_their_ops():
    a = torch.randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        fastgemm.matmul(a, a)
        fastgemm.gemm(a, a, a, level=2)
        fastgemm.transpose(a, level=1)
        fastgemm.add(a, a, level=1)
    names = [event.name for event in recorded.events()]
    for op, level in (("gemm", 2), ("transpose", 1), ("add", 1)):
        device = a.device.type
        wanted = {
            f"fastgemm.{op}[{n}]" for (o, d, n), at in LEVEL.items() if (o, d, at) == (op, device, level)
        }
        inner = [event for event in recorded.events() if event.name in wanted]
        assert len(inner) == 1, names
        assert inner[0].cpu_parent.name == f"fastgemm::_{op}"
    assert "fastgemm::_matmul" in names
    table = recorded.key_averages().table()
    assert "fastgemm::_gemm" in table and "fastgemm.gemm[" in table


@every_device
def test_one_range_a_launch():
    """If no kernel takes a batch of two dimensions at once, there are several launches."""
    a, b = torch.randn(3, 2, 8, 8), torch.randn(2, 8, 8)
    assert len(kernels_that_ran(lambda: fastgemm.matmul(a[:, :, :4], b, level=3))) == 3
    b = b[0]
    assert len(kernels_that_ran(lambda: fastgemm.matmul(a, b, level=3))) == 1
    assert kernels_that_ran(lambda: fastgemm.matmul(a[:0], b)) == []


@every_device
def test_a_refused_call_leaves_no_open_range():
    a = torch.randn(8, 8)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        with pytest.raises(ValueError):
            fastgemm.matmul(a, a, kernel="none")
        torch.mm(a, a)
    (mm,) = [event for event in recorded.events() if event.name == "aten::mm"]
    assert mm.cpu_parent is None


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("device", ["cuda"])
def test_the_gpu_timeline_shows_our_kernels():
    a = torch.randn(256, 256)
    calls = [lambda level=level: fastgemm.matmul(a, a, level=level) for level in range(1, 7)]
    for call in calls:
        call()
    for call in calls:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            call()
            torch.cuda.synchronize()
        on_gpu = [e.name for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        assert any("fastgemm" in name for name in on_gpu), on_gpu


# A minimal NVTX tool that prints each pushed range. NVTX finds it by NVTX_INJECTION64_PATH.
LISTENER = r"""
#include <cstdio>
#include <nvtx3/nvToolsExt.h>
static int NVTX_API push(const char* name) { std::printf("range %s\n", name); std::fflush(stdout); return 0; }
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  auto* table = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions; unsigned int size = 0;
  if (!table || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size)) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  return 1;
}
"""
EMIT = """
import torch, fastgemm
a = torch.randn(64, 64, device="cuda")
fastgemm.matmul(a, a, level=1)
print("silent until asked", flush=True)
with torch.autograd.profiler.emit_nvtx():
    fastgemm.matmul(a, a, level=1)
    fastgemm.transpose(a, level=1)
"""


def nvtx_headers() -> Path | None:
    roots = [Path("/usr/local/cuda/include"), *Path(torch.__file__).parents[1].glob("nvidia/*/include")]
    return next((root for root in roots if (root / "nvtx3/nvToolsExt.h").is_file()), None)


@pytest.mark.skipif("cuda" not in DEVICES or not nvtx_headers(), reason="needs a GPU and NVTX's headers")
@pytest.mark.parametrize("device", ["cuda"])
def test_nvtx_ranges_name_kernels(tmp_path):
    (tmp_path / "listener.cpp").write_text(LISTENER)
    tool = tmp_path / "listener.so"
    build = f"g++ -shared -fPIC -I{nvtx_headers()} {tmp_path / 'listener.cpp'} -o {tool}"
    subprocess.run(build.split(), check=True)
    env = os.environ | {"NVTX_INJECTION64_PATH": str(tool)}
    done = subprocess.run([sys.executable, "-c", EMIT], env=env, capture_output=True, text=True, check=True)
    before, _, after = done.stdout.partition("silent until asked")
    assert "fastgemm" not in before
    assert "range fastgemm.gemm[naive]" in after
    assert "range fastgemm.transpose[" in after

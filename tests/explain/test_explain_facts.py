"""Tests what fastgemm.explain knows besides counters: occupancy, GPUs, and the names and lines of kernels."""

import json
import subprocess

import explain_model as model
import fastgemm
import pytest
from fastgemm._explain import resources, symbols
from fastgemm._explain.kernel_names import short_name
from fastgemm._explain.occupancy import occupancy
from fastgemm._explain.run import load_simulator
from fastgemm._explain.symbols import Frame
from fastgemm._gpus import GPUS, find_gpu

STORED = json.loads(load_simulator().resources())


# --- occupancy

# (GPU, registers, threads, static and dynamic shared memory, blocks for each multiprocessor, their limit), from
# cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0's cuda_occupancy.h, for one named barrier.
NVIDIA = [
    ("A100", 32, 256, 0, 0, 8, "registers, threads"),
    ("A100", 33, 256, 0, 0, 6, "registers"),
    ("A100", 132, 115, 0, 0, 3, "registers"),
    ("A100", 10, 427, 48592, 0, 3, "shared memory"),
    ("A100", 18, 956, 0, 66354, 2, "registers, shared memory, threads"),
    ("A100", 103, 864, 30720, 35403, 0, "registers"),
    ("A100", 8, 849, 44160, 128515, 0, "shared memory"),
    ("A100", 32, 90, 4176, 0, 21, "registers, threads"),
    ("A100", 25, 41, 0, 0, 32, "blocks, registers, threads"),
    ("H100", 10, 861, 0, 74408, 2, "threads"),
    ("H100", 35, 23, 6160, 0, 32, "blocks, shared memory"),
    ("H100", 42, 309, 0, 168851, 1, "shared memory"),
    ("H100", 23, 884, 37552, 31117, 2, "threads"),
    ("H100", 4, 32, 0, 0, 32, "blocks"),
    ("L40S", 32, 256, 0, 0, 6, "threads"),
]


@pytest.mark.parametrize(("gpu", "registers", "threads", "static", "dynamic", "blocks", "limiters"), NVIDIA)
def test_occupancy_is_nvidias(gpu, registers, threads, static, dynamic, blocks, limiters):
    found = occupancy(GPUS[gpu], threads=threads, registers=registers, shared_bytes=static + dynamic)
    assert (found.blocks, ", ".join(found.limiters)) == (blocks, limiters)
    warps = -(-threads // 32) * blocks
    assert (found.warps, found.share) == (warps, warps / (GPUS[gpu].holds.max_threads // 32))


def test_occupancy_at_the_edges():
    """Computed by hand for an H200, which has 228 KB of shared memory. One block may have 227 KB."""
    for threads, registers, shared, blocks in (
        (384, 168, 227 << 10, 1),
        (384, 168, (227 << 10) + 1, 0),
        (384, 168, 113 << 10, 1),
        (384, 80, 113 << 10, 2),
        (1025, 16, 0, 0),
    ):
        found = occupancy(GPUS["H200"], threads=threads, registers=registers, shared_bytes=shared)
        assert found.blocks == blocks, (threads, registers, shared)
    # Shared memory allows six blocks of 33792 bytes and 1 KB each. 80 registers for 256 threads allow three.
    limits = {"threads": 8, "shared memory": 6, "blocks": 32, "registers": 3}
    assert occupancy(GPUS["H200"], threads=256, registers=80, shared_bytes=33792).limits == limits


def test_unknown_registers_limit_nothing(report_of):
    (launch,), frames = model.naive()
    report = report_of(([{**launch, "function": "void new_kernel<float>(float*)"}], frames))
    assert report.occupancy.registers is None and "registers" not in report.occupancy.limits
    assert any("nvcc has not compiled" in note for note in report.notes)
    assert "unknown registers" in str(report)


# --- GPUs


def test_peaks_of_multiply_adds_are_those_of_the_data_sheets():
    float32 = {"A100": 19.5, "H100": 67, "H200": 67, "L40S": 91.6, "RTX 4090": 82.6}
    float64 = {"A100": 9.7, "H100": 34, "H200": 34, "RTX 4090": 1.29}
    assert float32.keys() == GPUS.keys()
    for dtype, sheet in {"float32": float32, "float64": float64}.items():
        found = {name: GPUS[name].peak(dtype) / 1e12 for name in sheet}
        assert found == pytest.approx(sheet, rel=0.02), dtype


@pytest.mark.parametrize(
    ("gpu", "names"),
    [
        ("H200", ["h200", "H200", "NVIDIA H200"]),
        ("RTX 4090", ["rtx4090", "4090", "RTX 4090", "GeForce RTX-4090"]),
        ("H100", ["NVIDIA H100 80GB HBM3"]),
        ("A100", ["NVIDIA A100-SXM4-80GB"]),
    ],
)
def test_gpus_are_found_as_people_and_drivers_name_them(gpu, names):
    assert {find_gpu(name).name for name in names} == {gpu}


@pytest.mark.parametrize("name", ["V100", "", "H20", 200, None, "NVIDIA H100 PCIe"])  # with another clock
def test_unknown_gpus_are_refused_with_those_there_are(name):
    with pytest.raises(ValueError, match="A100, H100, H200, L40S, RTX 4090"):
        fastgemm.explain("gemm", level=1, shape=(8, 8, 8), gpu=name)


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [("8.0", "sm_80"), ("8.9", "sm_80"), ("9.0", "sm_90a"), ("10.3", "sm_80"), ("12.1", "sm_120")],
)
def test_registers_are_those_of_the_code_that_a_gpu_runs(capability, architecture):
    assert resources.architecture(capability) == architecture
    assert resources.resources("gemm_naive_kernel<float, true>", capability).architecture == architecture
    hopper = set(STORED["sm_90a"]) - set(STORED["sm_80"])
    assert hopper and all(resources.resources(name, capability).architecture == "sm_90a" for name in hopper)


def test_registers_compiled_for_another_gpu_are_said_to_be(report_of):
    launches, frames = model.naive()
    for gpu in ("H200", "A100", "RTX 4090"):
        assert not any("registers" in note for note in report_of((launches, frames), gpu=gpu).notes)
    launches[0]["function"] = min(set(STORED["sm_90a"]) - set(STORED["sm_80"]))
    assert not any("registers" in note for note in report_of((launches, frames)).notes)
    notes = " ".join(report_of((launches, frames), gpu="A100").notes)
    assert "registers are those that nvcc allocates for sm_90a; for an A100 they can differ" in notes


# --- names and places


NVCC, GCC, LAUNCHER = "fastgemm::cuda::", "fastgemm::simt::", "fastgemm::simt::Launcher<&"


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        (
            f"void {NVCC}(anonymous namespace)::gemm_naive_kernel<{NVCC}Half, true>({NVCC}Gemm<{NVCC}Half>, int)",
            "gemm_naive_kernel<Half, true>",
        ),
        (
            f"void {NVCC}gemm_naive_kernel<{NVCC}Gemm<unsigned char>, true>({NVCC}Gemm<unsigned char>, int)",
            "gemm_naive_kernel<uint8, true>",
        ),
        (
            f"void {GCC}gemm_small_kernel<{GCC}Fusing<{GCC}Config<float, 64> > >({GCC}Gemm<float>, int)",
            "gemm_small_kernel<Fusing<Config<float, 64>>>",
        ),
        (
            f"void {GCC}transpose_flat_kernel<{GCC}Vector<unsigned int, 4>, long>({GCC}Transpose)",
            "transpose_flat_kernel<Vector<uint32, 4>, long>",
        ),
        (
            f"{LAUNCHER}(void {GCC}(anonymous namespace)::gemm_tiled_kernel<float>({GCC}Gemm<float>, int))>",
            "gemm_tiled_kernel<float>",
        ),
        (f"{LAUNCHER}{GCC}gemm_double_buffer_kernel>", "gemm_double_buffer_kernel"),
        (
            f"void {GCC}pipelined_kernel<4, {GCC}Tile<4, 8>, ({GCC}(anonymous namespace)::Rows)0>({GCC}Transpose)",
            "pipelined_kernel<4, Tile<4, 8>, (Rows)0>",
        ),
    ],
)
def test_one_name_for_what_nvcc_and_gcc_compiled(demangled, short):
    assert short_name(demangled) == short


def test_the_registers_of_every_kernel_are_package_data():
    assert list(STORED) == ["sm_90a", "sm_80", "sm_120"]
    for kernels in STORED.values():
        assert len(kernels) > 100
        for name, (registers, shared) in kernels.items():
            assert 8 <= registers <= 255 and 0 <= shared <= 48 * 1024, name


ADDR2LINE = """0x000000000000000f
fastgemm::simt::load_vector<float>(float const*)
/x/fastgemm/csrc/cuda/device/vector.cuh:41
fastgemm::simt::Tile::read(int) const
/x/fastgemm/csrc/cuda/gemm/parts/tile.cuh:79 (discriminator 3)
void fastgemm::simt::gemm_tiled_kernel<float>(fastgemm::simt::Gemm<float>)
/x/fastgemm/csrc/cuda/gemm/ladder/level2_tiled.cu:44
operator()
/x/fastgemm/csrc/cuda/device/launch.cuh:101
std::_Function_handler<void ()>::_M_invoke(std::_Any_data const&)
/usr/include/c++/12/bits/std_function.h:290
0x000000000000001f
??
??:0
"""


def test_frames_of_the_device_layer_are_skipped(monkeypatch):
    asked = {}

    def answer(command, input, **options):
        asked["command"], asked["input"] = command, input
        return subprocess.CompletedProcess(command, 0, ADDR2LINE, "")

    monkeypatch.setattr(symbols, "_tool", lambda: "addr2line")
    monkeypatch.setattr(symbols.subprocess, "run", answer)
    found = symbols.locate("/x/_simt.so", [0x20, 0x10])
    assert asked["input"].split() == ["0xf", "0x1f"], "the instruction before the return address"
    assert [str(frame) for frame in found[0x10]] == [
        "csrc/cuda/gemm/parts/tile.cuh:79",
        "csrc/cuda/gemm/ladder/level2_tiled.cu:44",
    ]
    assert found[0x10][0].function == "Tile::read" and found[0x10][1].function == "gemm_tiled_kernel<float>"
    assert str(found[0x20][0]) == "_simt.so+0x1f:0"


def test_without_addr2line_sites_are_offsets_and_that_is_said_once(monkeypatch):
    monkeypatch.setattr(symbols.shutil, "which", lambda name: None)
    symbols._tool.cache_clear()
    with pytest.warns(RuntimeWarning, match="addr2line") as said:
        found = [symbols.locate("/x/_simt.so", [0x10]) for _ in range(2)]
    symbols._tool.cache_clear()
    assert len(said) == 1 and found[1][0x10][0].file == "_simt.so+0xf"


def test_a_package_brings_its_own_copy_of_the_source(monkeypatch, tmp_path):
    copy = tmp_path / model.NAIVE
    copy.parent.mkdir(parents=True)
    copy.write_text("first line\nsecond line\n")
    monkeypatch.setattr(symbols, "files", lambda package: tmp_path)
    built_elsewhere = Frame("kernel", model.NAIVE, 2, "/nowhere/csrc/cuda/gemm/ladder/level1_naive.cu")
    assert symbols.source_lines(built_elsewhere) == ["first line", "second line"]


def test_sources_that_are_gone_leave_the_counters(report_of):
    launches, frames = model.naive()
    gone = {pc: (Frame("kernel", "csrc/cuda/gone.cu", 35, "/nowhere/gone.cu"),) for pc in frames}
    report = report_of((launches, gone))
    assert "load a, 4 B" in str(report) and "load a, 4 B" in report._repr_html_()


def test_a_report_displays_nothing_itself_in_a_notebook(report_of, monkeypatch):
    """There rich displays what is printed to a console, unless it is told not to."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("it displays"))
    report = report_of(model.naive())
    assert "load a, 4 B" in str(report) and "load a, 4 B" in report._repr_html_()

"""What benchmarks/run.py measures, beyond the package's own bench, for the pages of this repository.

presets       sets of problems by name: cpu_presets, gpu_presets, weak_spots
sweep         many problems against torch, with more data than ``fastgemm bench`` collects
layers        ordinary products, of powers of two and of models' layers; grid_means: means over them
sustained     long warm runs of a GPU; telemetry: its clocks, power and temperature during a run
timers        divides a preset's time among its calls, and times batches by the wall clock
plain_read    the bound of a product with one large operand; cublas: functions of cuBLAS that torch does not call
host_time     the host's time of a call; overhead: the same under torch.compile; turns: layers that alternate
accuracy      errors of float32 products against float64, a study of its own
peers         torch.compile, Triton, JAX and cuBLAS' emulated modes compared with this library
environment   the commit and the driver of a measurement, and the folder of its results
tables        the printed tables; plots: pictures of the pages
"""

"""What benchmarks/run.py measures of the package, for the pages of this repository alone.

presets       sets of problems by name: cpu_presets, gpu_presets, weak_spots
sweep         many problems against torch, by a method with more than that of ``fastgemm bench``
layers        ordinary products, of powers of two and of models' layers; grid_means: means over them
sustained     long warm runs of a GPU; telemetry: its clocks, power and temperature meanwhile
timers        what a preset's time is shared out by, and batches by the wall clock
plain_read    what bounds a product of which one operand is large; cublas: what torch does not call of cuBLAS
host_time     what a call costs the host; overhead: what torch.compile makes of that; turns: where layers alternate
accuracy      errors of float32 products against float64, a study of its own
peers         torch.compile, Triton, JAX and cuBLAS' emulated modes beside this library
environment   the commit and the driver that something was measured with, and what results are filed under
tables        what is printed of it all; plots: pictures of the pages
"""

"""The data by which kernels are chosen: measurements on disk, clocks, and predictions."""

"""What kernels are chosen by: measurements on disk, clocks, and predictions."""

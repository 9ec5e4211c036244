"""What a CUDA kernel does to memory, counted on the simulator: ``fastgemm.explain``."""

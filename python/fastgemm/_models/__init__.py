"""Models with weights of 4 and 8 bits: :func:`fastgemm.nn.quantize` and :func:`fastgemm.nn.load_quantized`."""

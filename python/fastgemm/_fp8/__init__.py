"""Matrices of 8-bit floating-point numbers: how scales are shared, and the functions that use them."""

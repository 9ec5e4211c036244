"""Weights of 4 and 8 bits: their numbers, their orders in memory, the tensor that holds them, and its
products."""

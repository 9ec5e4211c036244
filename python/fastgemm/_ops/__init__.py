"""The operations, each with its gradient, and how their calls reach ``torch.ops.fastgemm``."""

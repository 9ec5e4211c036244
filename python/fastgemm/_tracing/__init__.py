"""What torch needs to know of the ops: shapes, gradients, transforms and the number of operations."""

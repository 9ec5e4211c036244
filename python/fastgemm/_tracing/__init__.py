"""What torch is told of the ops: shapes, gradients, transforms and the number of operations."""

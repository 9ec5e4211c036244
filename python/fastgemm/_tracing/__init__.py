"""What torch needs to know about the ops: shapes, gradients, transforms and the number of operations."""

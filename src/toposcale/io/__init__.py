"""Files in and out: errors, atomic writes, tables, tensors, training logs and evaluation results."""

"""What changes: losses, the model over packed trees, the optimizer step, checkpoints, in a process of its own."""

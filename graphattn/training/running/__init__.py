"""The loop of a training, and what runs it: batches, checkpoints, signals, processes."""

"""Training: batches, loop, schedule, early stopping, metrics, checkpoints, runs."""

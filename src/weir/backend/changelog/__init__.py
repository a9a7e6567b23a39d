"""A log of state changes beside a backend: checkpoints need only what the log does not hold yet."""

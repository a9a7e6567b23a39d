"""The same work on Weir and on what a user would pick instead; `python -m benchmarks` runs it."""

"""Real faults against a real job: what `make chaos` runs."""

"""Checkpoints: their files, and every decision about them as pure functions and machines."""

"""Operators, subtasks, timers, watermarks: knows no engine and no network."""

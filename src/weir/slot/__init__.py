"""The slot: a resident process on an executor host that owns one subtask of every operator."""

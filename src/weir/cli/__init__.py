"""The command `weir`."""

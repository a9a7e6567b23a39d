"""Working state of one subtask: the keyed backend SPI and its implementations."""

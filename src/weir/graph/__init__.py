"""The logical graph of a program and its compilation into levels."""

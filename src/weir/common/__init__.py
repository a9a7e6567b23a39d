"""PyFlink common names."""

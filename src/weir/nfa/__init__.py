"""Pattern matching over events without input and output: specification, compiler, matcher."""

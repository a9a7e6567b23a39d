"""Moving a PyFlink program: what it would meet here, said without running it."""

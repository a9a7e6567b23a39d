"""What is measured: one module for each engine, run in processes of their own."""

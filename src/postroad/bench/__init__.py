"""Benchmarks: one module per part, each with a `main()` that prints its table."""

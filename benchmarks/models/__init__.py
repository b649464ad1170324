"""The models of the benchmarks; `catalogue` looks them up by name."""

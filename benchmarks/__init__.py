"""Thunder's figures, side by side with eager and torch.compile: ``python -m benchmarks --help``."""

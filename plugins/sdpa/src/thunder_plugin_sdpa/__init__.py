"""An executor that runs attention with PyTorch's kernels."""

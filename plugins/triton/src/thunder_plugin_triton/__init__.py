"""An executor with Triton kernels for operations of language models."""

"""Triton kernels for what language models compute, as an executor for Thunder."""

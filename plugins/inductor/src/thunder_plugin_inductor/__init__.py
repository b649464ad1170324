"""Regions of Thunder programs, compiled by PyTorch's Inductor."""

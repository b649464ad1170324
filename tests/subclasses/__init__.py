"""Tensors that hold tensors: wrapper subclasses in compiled programs."""

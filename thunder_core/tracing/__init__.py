"""Record calls on fake tensors: metadata, effects, and traces of Python functions."""

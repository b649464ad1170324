"""Record calls on fake tensors: infer metadata and effects, and trace Python functions."""

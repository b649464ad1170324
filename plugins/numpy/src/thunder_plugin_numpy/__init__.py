"""Functions on NumPy arrays as programs of Thunder, through the NumPy layer of PyTorch."""

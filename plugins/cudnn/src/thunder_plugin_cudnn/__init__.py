"""cuDNN's attention and normalizations, through its graph interface, as an executor for Thunder."""

"""Linear layers in eight-bit floats by Transformer Engine, as an executor for Thunder."""

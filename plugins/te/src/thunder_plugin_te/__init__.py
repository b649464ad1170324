"""An executor that runs linear layers in FP8 with Transformer Engine."""

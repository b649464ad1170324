"""Where the time of a training step goes."""

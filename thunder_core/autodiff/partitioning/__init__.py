"""The partition of a joint trace into forward and backward, by a minimum cut."""

"""What happened in a compilation, as data."""

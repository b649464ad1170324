"""The command ``thunder``, a file for each of its commands. Those that need PyTorch and plugins import them."""

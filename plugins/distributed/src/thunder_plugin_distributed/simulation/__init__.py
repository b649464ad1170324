"""Predicts communication, memory and time of one rank of many from the traces of its program."""

"""The front end of Thunder: it runs a Python program once, and records it as a trace with guards.

`record` records what the program computes; `observe`, which does not import it, observes what the program reads and
writes in Python. The compiler calls the front end through `thunder_core.contract` only.
"""

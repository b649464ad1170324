"""The front end of Thunder: it runs a Python program once, and records it as a trace with guards."""

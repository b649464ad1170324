"""The operators that nvFuser runs, a file for each kind."""

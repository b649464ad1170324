"""The operators that nvFuser supports, by kind."""

"""Random Python programs, run eagerly and compiled: every difference that a caller can see is a defect."""

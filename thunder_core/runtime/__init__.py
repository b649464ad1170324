"""What users hold: compiled functions and modules, their options and cache."""

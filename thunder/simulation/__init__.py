"""What a program of many ranks communicates, keeps in memory and takes, told from its traces alone."""

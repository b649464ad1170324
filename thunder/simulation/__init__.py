"""What a program of many ranks communicates, keeps in memory and how long a step takes, predicted from its traces."""

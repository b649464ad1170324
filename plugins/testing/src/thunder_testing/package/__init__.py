"""Tests of a plugin's package: its metadata, what importing it brings in, its options, and its README."""

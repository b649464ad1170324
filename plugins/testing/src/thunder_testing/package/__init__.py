"""Tests of a plugin's package: metadata, cost of import, options, and README."""

"""Profiles of training steps."""

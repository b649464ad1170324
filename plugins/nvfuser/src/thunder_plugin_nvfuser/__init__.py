"""Regions of Thunder programs, compiled by nvFuser."""

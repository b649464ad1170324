"""Traces as files: read printed programs back, save programs that run by themselves."""

"""Functional transformations, ``grad`` and ``vjp``, which a program can call while it is recorded."""

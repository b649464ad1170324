"""Differentiation of traces: the joint trace, its partition into forward and backward, derivatives of symbols."""

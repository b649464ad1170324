"""Differentiation of traces: the joint trace, its partition into forward and backward, and the derivatives of symbols."""

"""Derivatives of single ops: from an executor, a rule, autograd on fake tensors, or autograd at run time."""

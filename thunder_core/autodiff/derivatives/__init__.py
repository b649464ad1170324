"""Derivatives of single ops: by their own programs, an executor, a rule, or autograd, on fake tensors or at run time.

`derive` tries these sources in order, and caches the result for equal ops:

- `by_programs`: the programs that an op was recorded with; the ops of wrapper subclasses have them.
- `by_executor`: the forward and backward functions of the executor that claims the op, if it has them.
- `by_rule`: a rule by hand, of the core (`rules`) or of a plugin.
- `by_autograd`: PyTorch's autograd on fake tensors, recorded as ATen operators (`tracing`).
- `by_eager`: PyTorch's autograd at run time. Forward records an autograd graph of this op alone, and backward runs it.
  This handles everything: a user's `torch.autograd.Function`, formulas that read values, sparse tensors.

Ops that call hooks have `by_hook`. Derivatives by rules and by autograd on fake tensors are also stored on disk. If
backward reads only arguments, results and views of them, forward keeps the op; otherwise ops of its derivative replace
it.
"""

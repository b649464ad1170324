"""Differentiation of traces: the joint trace, its partition into forward and backward, derivatives of symbols.

`Differentiate` finds the values that depend on an input that requires grad and contribute to a result (`activity`). For
each op that computes such values it gets a derivative (`derivatives`), and appends backward to forward, from the last
op to the first (`joint_writer`). Cotangents that are zero are not materialized: an op whose results have none has no
backward. `partitioning` splits the joint trace. Three subjects concern more than one op:

- Checkpoint regions are inlined, with their values marked as not to be saved.
- Hooks of modules and tensors are ops (`tensor_hooks`) whose derivatives call the user's functions, in eager's order. A
  plugin can replace the gradients of several inputs together (`on_input_gradients`), as for DistributedDataParallel.
- Results that are views are created by the epilogue, outside of the differentiated program (`output_views`).

`zero_cotangents` specializes backward to absent cotangents and to the gradients that are needed. Backward is linear in
its cotangents, so it removes ops instead of differentiating again.

`as_recorded` decides which programs PyTorch runs op by op as they were recorded, under its own autograd: those with an
op tagged `Tag.AS_RECORDED` (``torch.autograd.grad``, ``requires_grad_``, assignments to ``grad`` or ``data``; without
the leaves that `inner_leaves` finds to be invisible), with a write through ``data`` to what autograd saved, with hooks
whose gradients a trace cannot express, or with an op tagged `Tag.AUTOGRAD` whose result needs gradients. So are
programs that `Functionalize` refuses, and those that end with an exception (`thunder_core.runtime.transform`).
"""

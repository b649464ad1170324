"""Passes: transformations of traces.

A pass (`base.Pass`) is a frozen dataclass whose fields are its options. ``run(trace, context)`` returns a new trace, or
a result that contains one. The `PassContext` has the phase (inference, joint, forward, backward), the executors, and
values with special roles. `PassManager` runs passes, measures them, and verifies their results under
``THUNDER_VERIFY=1``. A transform (`transform.Transform`) is a pass of a configuration, with a `Place`. Steps and places
are in `thunder_core.runtime.pipeline`.

- `functionalize`: in-place ops become ops that return new values. Writes to inputs become the *epilogue*, a trace that
  runs after the computation; `grouped_copies` joins its copies of one dtype.
- `explicit_autocast`: an op under autocast becomes itself on cast arguments, or its decomposition, whichever equals
  autocast on fake tensors. A weight is cast once, as by PyTorch's cache.
- `checkpoint_regions`: bodies are separate traces, which passes change like the program around them, and which are
  inlined before differentiation.
- `rewrite`: the engine for rules ``Rule(pattern, replacement)``. A pattern is a function of an op that can use tags,
  users and `Aliases`.
- `assign_executors`: offers each op to the executors in order. All offers precede any change of the trace
  (`assignment`). An op that only the reference executor claims is lowered if an executor claims a part of it.
- `region_calls`: executors select regions of the ops that they claimed. Each is extracted as a trace and replaced by
  one call; views that are read elsewhere stay outside. `admission` runs PyTorch's kernels for tensors that a region was
  not compiled for, and where the region raises `RegionError`.
- `reinplace`: restores in-place ops whose old value no op reads, after claims, since executors are offered functional
  ops; and before the last check of a value never.
- `value_checks`, `dead_code`, `delete_last_use`: checks of values and sizes, unused ops, ``del`` after the last use.

Code that needs the effect of a pass on another trace calls its function, such as `without_dead_code`.
"""

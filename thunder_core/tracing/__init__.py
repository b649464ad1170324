"""Record calls on fake tensors: infer metadata and effects, and trace Python functions.

Derivatives, lowerings, rewrites of executors, calls under autocast and patterns of composites are Python functions that
the compiler traces with one `Tracer`, at one of three levels: torch functions, ATen operators of forward and backward,
or core ATen after PyTorch's decompositions. `trace_call` returns the trace of one function for `Builder.inline`;
`lowering` lowers ops to core ATen. `ObservingFakeMode` (`fake_tensors`), which front ends use too, records the writes
and random numbers of each operator. Results have the strides of PyTorch's kernels where its metadata has others
(`thunder_core.pytorch_errata`).

Sizes that vary between calls have three representations:

- In the user's program: `thunder_frontend.record.traced_size.TracedSize`, which Python code sees as an ``int``.
- On fake tensors: a ``SymInt`` of PyTorch's ``ShapeEnv``. Each read of its value adds a fact to the `Sizes` of the
  compilation.
- In traces: a `SizeExpr`; `on_fakes` and `from_fake` in `thunder_core.ir.size` convert between the last two.

After the passes the facts become the `SizesGuard` of the prologue, which passes the symbols' values to the programs. If
the compiler needs the value of a `SizeExpr`, it raises `SizeVariesError`, and the program is compiled with constant
sizes. Sizes that ops define (``x[mask]``, ``item()``) are the last outputs of the trace. Their facts cannot be guards:
`CheckSizes` inserts checks where the last symbol is known.
"""

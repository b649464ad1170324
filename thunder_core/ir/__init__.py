"""The intermediate representation: proxies, symbols and traces; their printer, verifier and compilation to Python.

- A `Symbol` is one operation: a callable with tags. Attributes that its row does not set are derived from PyTorch.
- A `BoundSymbol`, or op, is a call of a symbol, with its arguments, outputs, effects, modes and source location.
- `Effects` are everything that an op does besides computing its outputs: writes, random numbers, external effects, and
  the channels (process groups) in which it communicates. Passes keep the order within a channel.
- A `Trace` is a sequence of ops with inputs and an output. Its `Stage` restricts the effects of its ops; `verifier`
  checks it. `producer`, `users` and `is_returned` of a value are computed on first use.
- Proxies are the values of a trace: tensors (`TensorProxy`), numbers and other objects. Tensors with one storage number
  share storage; `Aliases` derives which storages a trace creates, reads, writes and returns.
- A `SizeExpr` (`size`) replaces an int that varies between calls. Its value must not be read.
- `Builder` allocates names and storage numbers, and inlines one trace into another.
- `lifetimes` derives from the deletions of executable traces which storages are alive at each op.
- `BoundedCache` stores results by `keys` of ops, so that equal ops (those of equal layers) are lowered and
  differentiated once.

`printer` prints a trace as a Python module, `literals` its arguments and `annotation` its types; ``thunder_saving`` in
``plugins/saving`` reads such a module. `program` compiles the printed source and registers it for tracebacks.
"""

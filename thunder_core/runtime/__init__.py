"""The runtime: calls of compiled programs, their cache entries, and the compilation of new ones.

A call of a program (`program_cache.ProgramCache`) runs the entry whose guards hold. Without one,
`compile.compile_program` lets the front end record the call (`thunder_core.contract`), runs the passes (`transform`,
`pipeline`), and generates the prologue and the function of the entry (`run_function`): it runs the computation and the
epilogue, repeats writes to Python objects, and reconstructs the result. In the first run of a program the results of
executors are compared with the trace (`thunder_core.ir.result_checks`). Programs run under `own_state`, whatever modes
their caller has enabled.

Gradients: `bridge` joins forward and backward to PyTorch's autograd by one `torch.autograd.Function`.

- Saved tensors pass through ``save_for_backward``, so ``saved_tensors_hooks``, version checks and ``retain_graph``
  work.
- A backward for some of the cotangents or gradients is compiled when a call first needs it (`differentiated`). Tensors
  that only the other outputs need stay saved, as in eager.
- For autograd all outputs belong to one node. Where a hook of the caller on an output would see an incomplete gradient,
  as another output is computed from it, backward raises an error.
- With ``create_graph=True`` the program runs again from its inputs, under autograd (`second_derivatives`).

Values: if Python code reads a value of a tensor, the program has an op that checks it (`Tag.GUESS`,
`thunder_core.symbols.checks`) and raises `WrongGuess`. The entry for the other value then runs, or is compiled
(`outcomes`). Until the last check a run has no visible effect:

- Writes to inputs are in the epilogue; `Reinplace` restores no in-place op before the last check.
- `ReportsLast` moves prints, logs and warnings behind it. Ops after a check depend on it.
- `rollback` restores random generators; for a program that runs as recorded also the inputs that it wrote, the
  gradients of leaves, and PyTorch's switches. Such a program with another effect before a check is refused.
- Writes to Python objects come last in every program.

Sizes: `size_policy` selects the sizes and numbers that become symbols, from the option ``dynamic`` and earlier calls.
"""

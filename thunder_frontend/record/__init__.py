"""Acquisition: run the program once and record it as a trace.

`record_program.record` calls the user's function with the user's objects. A torch-function mode (`mode`) intercepts
each torch call. Functions with a row in `call_handlers.HANDLERS` are passed to its handler, all others to
`Recorder.call`, which

1. resolves the symbol and its canonical arguments (`thunder_core.symbols.registry`);
2. makes each real tensor that it has not seen before an input of the trace (`inputs`); the observer supplies its path;
3. runs the call on fake tensors, which gives shapes, strides, dtypes, aliasing and writes
   (`thunder_core.tracing.outcome`). Equal calls are inferred once (`inferred_calls`);
4. appends a bound symbol (`op_writer`) to the `OpenTrace`, and returns traced tensors, which have no data.

Python functions that a torch-function mode does not see, such as `torch.utils.checkpoint`, are replaced during
recording: `interception_table.TABLE` has a row for each, and plugins add rows. A fake tensor mode catches calls of
operators that bypass the torch-function mode (`aten_calls`). Handlers of both tables have the signature
``handler(recorder, original, *args, **kwargs)``.

Afterwards the program's writes to Python objects are undone. `reconstruction` generates the statements that create the
result and repeat the writes. A traced tensor that is reachable other than through the results raises
`LeakedTensorError` (`final_checks`). A program that raises an exception is compiled for this call; it performs its
writes and raises the exception (`program_exceptions`).

Values of tensors: ``if x.sum() > 0`` needs a value that does not exist during recording. `resolvers.RESOLVERS` are
tried in order. Each resolves the request, or declines with a reason. If all decline, `front_end` records the program
again with another `Attempt`:

1. An update of an optimizer that depends on values becomes one op (`eager_calls`).
2. A submodule that depends on values but returns known shapes, such as a router of experts, becomes one op.
3. Unless ``sharp_edges`` is ``"error"``, the values of this call are used, with checks (`deferred`, `speculation`), and
   sizes that depend on values become symbols (`result_sizes`).

`RecordAgain` also starts another attempt, with the options that it names. If no attempt succeeds, the call raises
`DataDependentError`.

Programs that run eagerly. Where recording cannot represent what the program does, the whole call runs in eager PyTorch,
and the report has the reason. Among these are: calls that start, wake or wait for a thread, or communicate with a
process; calls of C functions of packages other than Python, PyTorch and NumPy; ``functools.lru_cache`` around code that
runs with tensors; writes to NumPy arrays; parts of sparse tensors; quantized tensors; Python objects passed to an
operation that a call cannot create again (`created_objects`); and builtins that are replaced
(`thunder_core.checks.global_state`).

Refused without a plugin, which provides the recording: TorchScript (plugin `torchscript`), wrapper subclasses
(`tensor_classes`, plugin `subclasses`), collectives and modules of ``torch.distributed`` (`communication`,
`module_calls`, plugin `distributed`).
"""

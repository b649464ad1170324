"""Functional transformations: ``grad`` and ``vjp``, and calls of compiled programs under `torch.func`.

- `transformations` has the functions that `thunder.grad`, `thunder.value_and_grad` and `thunder.vjp` return. Inside of
  a program that is recorded, `pullback` differentiates the function: `function_joint` builds the joint trace, and
  `joint_recorder` records its forward and backward as operations of that program, which can be differentiated again.
- `transformed_calls` has the calls of a compiled program under `torch.func`, which unwraps its transformations one by
  one. Each replaces the program by a transformed one (`transformed_programs`), and the last is compiled. `thunder.jit`
  registers the class with `thunder.compiled.function.transform_calls_with`.
"""

import os

from thunder_core.tracing.frames import add_library

# Programs call transformations while they are recorded: these are not part of the user's program, but lead to it.
add_library(os.path.dirname(os.path.abspath(__file__)))

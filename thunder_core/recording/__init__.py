"""Record the call of a program with the tracer of the core: what a front end needs that does not run the user's Python.

`record_call` (`record_call.py`) records a function of tensors as a `thunder_core.contract.Recording`; `argument_tree`
(`trees.py`) gives the paths to the leaves of nested arguments, and the guards on their structure.
"""

from thunder_core.recording.program_tracer import autocast_region
from thunder_core.recording.record_call import record_call
from thunder_core.recording.trees import Leaf, argument_tree, leaf_guard

__all__ = ["Leaf", "argument_tree", "autocast_region", "leaf_guard", "record_call"]

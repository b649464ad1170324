"""Guards: paths to Python objects, conditions on these, and the prologues that check them in each call.

A guard is a row, ``Check(source, condition, expected)``. The source is an access path (`source`): each class defines
Python for its last step, which prologues and repeated writes contain. The condition is a row of `conditions`, a Python
expression with a comparison. The code of the prologue, the reason of a miss and the dispatch key derive from the row.
`TensorGuard` combines the conditions on the metadata of a tensor, and uses PyTorch's combined check while nothing
changes. Guards on several objects (identity, shared memory, sizes) have their own classes.

`build_prologue` generates the Python function that checks the guards of a cache entry and returns its inputs.
`Dispatcher` finds the entry for a call: it compares the properties in which entries differ, then runs one prologue.

Front ends derive the rows from a program; this package runs them, whatever front end they come from.
"""

"""The partition of a joint trace into forward and backward, by a minimum cut.

Ops that depend on a cotangent are backward. Values of forward that they read are saved or recomputed: `selection`
decides this for all values by one minimum cut (`cut`), in bytes. A view belongs to its storage and is recomputed at no
cost. Inputs cost nothing to save, except one that the epilogue overwrites, which costs a copy. Ops that draw random
numbers or have effects run once. Ops tagged `Tag.REPEATED` (all-gathers of sharded parameters) always run again, and
nothing else is recomputed from their results, so that costs never decide when processes communicate (`dependence`).

The policies of the option ``recompute`` are in `recompute`; `work` derives the cost class of an op from its tags. For
the option ``memory``, `memory` chooses among partitions by their peaks and times, and `offload` moves saved values to
the host.
"""

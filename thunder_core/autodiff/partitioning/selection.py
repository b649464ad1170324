"""Choice between recomputing and saving the values that backward needs, by a minimum cut.

The graph has a node for each op that may run in backward and for each storage that backward may need. If an op's node
is on the sink's side of the cut, the op runs in backward; if a storage's node is, the storage is available in backward.
Edges of unbounded capacity are dependencies; the capacity of each other edge is a cost:

    source -> op                the cost of recomputing an op that runs in forward
    op -> storage               the bytes of saving a storage that the op allocates, unless the op runs in backward
    source -> storage           the same, for an op that may not run in backward
    storage -> op, -> sink      unbounded: an op that runs in backward reads the storage, or backward always needs it

Running an op that only backward needs is free, unless forward runs it too to compute a saved value: then it has the
cost of recomputing. Such an op has a second node, which is on the source's side if forward runs the op.
"""

from __future__ import annotations

from thunder_core.autodiff.partitioning.cut import SINK, SOURCE, UNBOUNDED, Cut
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.recompute import Policy
from thunder_core.autodiff.partitioning.work import Work, work_of
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.storage_sizes import extent_bytes


def ops_for_backward(
    dependence: Dependence, policy: Policy, *, later: Policy | None = None, boundary: int = 0
) -> frozenset[int]:
    """The ops independent of cotangents that backward runs when it needs their results; other needed values are saved.

    Ops from ``boundary`` on follow the policy ``later``, if it is given, and all others ``policy``.

    The choice minimizes the bytes saved plus the cost of the ops that run twice; ties go to the fewest such ops. Views
    are always included: their storage is saved or recomputed, and the views are created again.
    """
    ending = range(boundary, len(dependence.inputs)) if later is not None else range(0)
    return _Selection(dependence, policy, later or policy, ending).ops()


class _Selection:
    def __init__(self, dependence: Dependence, policy: Policy, later: Policy, ending: range) -> None:
        self.dependence = dependence
        self.policy = policy
        self.later = later
        self.ending = ending
        self.ops_of_trace = dependence.joint.trace.symbols
        self.work = [work_of(op) for op in self.ops_of_trace]
        self.stream, self.materialized = self._stream(), self._materialized()
        self.views: set[int] = set()
        self.holders: dict[str, TensorProxy] = {}
        self.cut = Cut()
        self.nodes: dict[str, int | None] = {}
        self.in_backward: dict[int, int] = {}
        self.in_forward: dict[int, int] = {}
        self.prices: dict[int, int | None] = {}
        self.waiting: list[int] = []

    def ops(self) -> frozenset[int]:
        """Build the graph from what backward needs, and cut it."""
        self._find_holders()
        needed = {proxy.name: proxy for proxy in map(self._holder, self.dependence.needed) if proxy is not None}
        for name, holder in needed.items():
            if self._op_to_run(holder) is None:
                self.nodes[name] = None  # it is available in backward in every cut
        for holder in needed.values():
            node = self._node(holder)
            if node is not None:
                self.cut.edge(node, SINK, UNBOUNDED)
        while self.waiting:
            self._connect(self.waiting.pop())
        side = self.cut.sink_side()
        return frozenset(index for index, node in self.in_backward.items() if node in side).union(self.views)

    def _stream(self) -> frozenset[int]:
        """The ops of residual streams: those that compute from the stream what forward reads again after a contraction.

        Recomputing such a result takes all of the stream before it, and keeps it: backward needs the last part first.
        """
        reread = self._reread()
        after: set[str] = set()  # values from which the next part may continue: no contraction is in between
        stream: set[int] = set()
        for index in sorted(self.dependence.forward):
            continues = any(proxy.name in after for proxy in self.dependence.inputs[index])
            if index in reread and continues:
                stream.add(index)
            if index in reread or (continues and self.work[index] is not Work.CONTRACTION):
                after.update(proxy.name for proxy in self.dependence.outputs[index])
        return frozenset(stream)

    def _reread(self) -> frozenset[int]:
        """The ops whose results forward reads after a contraction that depends on them."""
        contraction: dict[str, int] = {}  # the first one that depends on a value
        reader: dict[str, int] = {}  # the last other op that reads it, or a view of it
        reread: set[int] = set()
        for index in sorted(self.dependence.forward, reverse=True):
            results, work = [proxy.name for proxy in self.dependence.outputs[index]], self.work[index]
            firsts = [contraction[name] for name in results if name in contraction]
            lasts = [reader[name] for name in results if name in reader]
            if firsts and lasts and min(firsts) < max(lasts):
                reread.add(index)
            firsts = [index] if work is Work.CONTRACTION else firsts
            lasts = lasts if work is Work.VIEW else [] if work is Work.CONTRACTION else [index]
            for name in [proxy.name for proxy in self.dependence.inputs[index]]:
                if firsts:
                    contraction[name] = min([*firsts, contraction.get(name, firsts[0])])
                if lasts:
                    reader[name] = max([*lasts, reader.get(name, 0)])
        return frozenset(reread)

    def _materialized(self) -> frozenset[int]:
        """The ops with a result that a contraction of backward reads, itself or a view of it: it is in memory then."""
        names: set[str] = set()
        found: set[int] = set()
        backward = frozenset(self.dependence.backward)
        for index in reversed(range(len(self.ops_of_trace))):
            work = self.work[index]
            reads = index in backward and work >= Work.CONTRACTION
            if any(proxy.name in names for proxy in self.dependence.outputs[index]):
                found.add(index)
                reads = reads or work is Work.VIEW
            if reads:
                names.update(proxy.name for proxy in self.dependence.inputs[index])
        return frozenset(found)

    # ---- storages ------------------------------------------------------------------------------------------------

    def _find_holders(self) -> None:
        """Map each tensor to the tensor that represents its storage: its base if it is a view, or itself."""
        for index in sorted(self.dependence.cone):
            holder = self._viewed(index)
            if holder is not None:
                self.views.add(index)
            own: dict[int, TensorProxy] = {}
            for proxy in self.dependence.outputs[index]:
                if isinstance(proxy, TensorProxy):
                    self.holders[proxy.name] = holder or own.setdefault(proxy.storage, proxy)

    def _holder(self, proxy: Proxy) -> TensorProxy | None:
        """The tensor that represents the storage of a value; None for numbers and objects, whose saving is free."""
        return self.holders.get(proxy.name, proxy) if isinstance(proxy, TensorProxy) else None

    def _viewed(self, index: int) -> TensorProxy | None:
        """The holder of the only storage that the op's arguments and results share, if the op may be recomputed."""
        if index in self.dependence.fixed or self.work[index] is not Work.VIEW:
            return None
        tensors = {proxy.name: proxy for proxy in map(self._holder, self.dependence.inputs[index]) if proxy is not None}
        if len(tensors) != 1:
            return None
        (holder,) = tensors.values()
        # A result of a checkpoint region that is a view of a value of the region can be saved by saving the result.
        joint = self.dependence.joint
        leaves = any(proxy.name not in joint.recomputed for proxy in self.dependence.outputs[index])
        return None if leaves and index < joint.backward_start and self._never_saved(holder) else holder

    def _never_saved(self, holder: TensorProxy) -> bool:
        names = self.dependence.joint.recomputed
        index = self.dependence.definitions.get(holder.name)
        if not names or index is None or index in self.dependence.fixed or self.work[index] is Work.ONCE:
            return False
        return any(p.name in names and self._holder(p) is holder for p in self.dependence.outputs[index])

    def _saving(self, holder: TensorProxy) -> int:
        """The bytes of saving a storage. Of a storage that is overwritten, a copy is saved."""
        if self._never_saved(holder):
            return UNBOUNDED
        if holder.storage in self.dependence.overwritten:
            return extent_bytes(holder)
        return 0 if holder.storage in self.dependence.given else self.dependence.sizes[holder.storage]

    def _node(self, holder: TensorProxy) -> int | None:
        """The node of a storage; None if it is available in backward at no cost."""
        if holder.name in self.nodes:
            return self.nodes[holder.name]
        saving, node = self._saving(holder), None
        if saving:
            node = self.cut.node()
            index = self._op_to_run(holder)
            self.cut.edge(SOURCE if index is None else self._in_backward(index), node, saving)
        self.nodes[holder.name] = node
        return node

    # ---- ops -----------------------------------------------------------------------------------------------------

    def _price(self, index: int) -> int | None:
        """The cost of running the op a second time; None if it must not run twice."""
        if index not in self.prices:
            self.prices[index] = self._new_price(index)
        return self.prices[index]

    def _new_price(self, index: int) -> int | None:
        if index in self.dependence.fixed or self.work[index] is Work.ONCE:
            return None
        if any(proxy.name in self.dependence.joint.recomputed for proxy in self.dependence.outputs[index]):
            return 0  # as the program requires
        if any(proxy.name in self.dependence.joint.repeated for proxy in self.dependence.inputs[index]):
            # Which repeated ops backward runs must follow from its formulas, not from costs: they may be collectives,
            # on which all ranks have to agree even if their sizes differ.
            return None
        policy = self.later if index in self.ending else self.policy
        op = self.ops_of_trace[index]
        return policy.price(op, self.work[index], stream=index in self.stream, materialized=index in self.materialized)

    def _op_to_run(self, holder: TensorProxy) -> int | None:
        """The index of the op that can recompute a storage in backward."""
        index = self.dependence.definitions.get(holder.name)
        if index is None or index in self.dependence.fixed:
            return None
        return None if index in self.dependence.forward and self._price(index) is None else index

    def _in_backward(self, index: int) -> int:
        if index not in self.in_backward:
            self.in_backward[index] = self.cut.node()
            self.waiting.append(index)
        return self.in_backward[index]

    def _in_forward(self, index: int) -> int:
        if index not in self.in_forward:
            self.in_forward[index] = self.cut.node()
        return self.in_forward[index]

    def _connect(self, index: int) -> None:
        """Add the edges into the nodes of an op."""
        holders = {proxy.name: proxy for proxy in map(self._holder, self.dependence.inputs[index]) if proxy is not None}
        for holder in holders.values():
            node = self._node(holder)
            if node is not None:
                self.cut.edge(node, self.in_backward[index], UNBOUNDED)
        price = self._price(index)
        paid = UNBOUNDED if price is None else price
        if index in self.dependence.forward:
            self.cut.edge(SOURCE, self.in_backward[index], paid)
            return
        self.cut.edge(self.in_backward[index], self._in_forward(index), UNBOUNDED)
        self.cut.edge(self._in_forward(index), self.in_backward[index], paid)
        for name in holders:
            before = self.dependence.definitions.get(name)
            if before is not None and before not in self.dependence.forward:
                self.cut.edge(self._in_forward(index), self._in_forward(before), UNBOUNDED)

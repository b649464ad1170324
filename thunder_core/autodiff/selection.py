"""What backward computes again and what is saved for it: a minimum cut.

There is a node for each line that may run in backward and for each memory that backward may need. On the sink's side, a
line runs in backward and a memory is there in backward. Edges that may not be cut say what needs what; the others are
what is paid for:

    source -> line              the price of running again a line that runs in forward
    line -> memory              the bytes of saving a memory that the line makes, unless the line runs in backward
    source -> memory            the same, where the line may not run in backward
    memory -> line, -> sink     unbounded: what a line that runs in backward reads, and what backward needs anyway

A line that only backward needs costs nothing to run there, but its price if forward runs it too, for something that is
saved. It has a second node, which is on the source's side if forward runs the line.
"""

from __future__ import annotations

from thunder_core.autodiff.cut import SINK, SOURCE, UNBOUNDED, Cut
from thunder_core.autodiff.dependence import Dependence
from thunder_core.autodiff.memory import extent_bytes
from thunder_core.autodiff.recompute import Policy
from thunder_core.autodiff.work import Work, work_of
from thunder_core.ir.proxy import Proxy, TensorProxy


def lines_for_backward(
    dependence: Dependence, policy: Policy, *, later: Policy | None = None, boundary: int = 0
) -> frozenset[int]:
    """The lines without cotangents that run in backward if something there needs them; all else it needs is saved.

    Lines from ``boundary`` on follow the policy ``later``, if that is given, and all others ``policy``.

    The choice has the least bytes saved plus price of lines that run twice, and of several, the fewest such lines.
    Views are among the lines always: the memory is saved or computed, and its views are made again.
    """
    ending = range(boundary, len(dependence.inputs)) if later is not None else range(0)
    return _Selection(dependence, policy, later or policy, ending).lines()


class _Selection:
    def __init__(self, dependence: Dependence, policy: Policy, later: Policy, ending: range) -> None:
        self.dependence = dependence
        self.policy = policy
        self.later = later
        self.ending = ending
        self.lines_of_trace = dependence.joint.trace.symbols
        self.work = {index: work_of(self.lines_of_trace[index]) for index in dependence.cone}
        self.views: set[int] = set()
        self.holders: dict[str, TensorProxy] = {}
        self.cut = Cut()
        self.memories: dict[str, int | None] = {}
        self.again: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.prices: dict[int, int | None] = {}
        self.waiting: list[int] = []

    def lines(self) -> frozenset[int]:
        """Build the graph from what backward needs, and cut it."""
        self._find_holders()
        needed = {proxy.name: proxy for proxy in map(self._holder, self.dependence.needed) if proxy is not None}
        for name, holder in needed.items():
            if self._line_to_run(holder) is None:
                self.memories[name] = None  # it is there whatever else is chosen
        for holder in needed.values():
            node = self._memory(holder)
            if node is not None:
                self.cut.edge(node, SINK, UNBOUNDED)
        while self.waiting:
            self._connect(self.waiting.pop())
        side = self.cut.sink_side()
        return frozenset(index for index, node in self.again.items() if node in side).union(self.views)

    # ---- memories ------------------------------------------------------------------------------------------------

    def _find_holders(self) -> None:
        """For each tensor the one that stands for its memory: that of which it is a view, or itself."""
        for index in sorted(self.dependence.cone):
            holder = self._viewed(index)
            if holder is not None:
                self.views.add(index)
            own: dict[int, TensorProxy] = {}
            for proxy in self.dependence.outputs[index]:
                if isinstance(proxy, TensorProxy):
                    self.holders[proxy.name] = holder or own.setdefault(proxy.storage, proxy)

    def _holder(self, proxy: Proxy) -> TensorProxy | None:
        """None for numbers and objects, which are always saved and cost nothing."""
        return self.holders.get(proxy.name, proxy) if isinstance(proxy, TensorProxy) else None

    def _viewed(self, index: int) -> TensorProxy | None:
        """The holder of the memory in which all tensors lie that the line reads and makes, if it may be made again."""
        if index in self.dependence.fixed or self.work[index] is not Work.VIEW:
            return None
        tensors = {proxy.name: proxy for proxy in map(self._holder, self.dependence.inputs[index]) if proxy is not None}
        if len(tensors) != 1:
            return None
        (holder,) = tensors.values()
        # The result of a checkpoint region that is a view of a value in it can be saved, as that.
        joint = self.dependence.joint
        leaves = any(proxy.name not in joint.recomputed for proxy in self.dependence.outputs[index])
        return None if leaves and index < joint.forward_lines and self._never_saved(holder) else holder

    def _never_saved(self, holder: TensorProxy) -> bool:
        names = self.dependence.joint.recomputed
        index = self.dependence.definitions.get(holder.name)
        if not names or index is None or index in self.dependence.fixed or self.work[index] is Work.ONCE:
            return False
        return any(p.name in names and self._holder(p) is holder for p in self.dependence.outputs[index])

    def _saving(self, holder: TensorProxy) -> int:
        """Bytes of saving a memory. A copy is saved of what is overwritten."""
        if self._never_saved(holder):
            return UNBOUNDED
        if holder.storage in self.dependence.overwritten:
            return extent_bytes(holder)
        return 0 if holder.storage in self.dependence.given else self.dependence.sizes[holder.storage]

    def _memory(self, holder: TensorProxy) -> int | None:
        """The node of a memory; None when it is there for nothing."""
        if holder.name in self.memories:
            return self.memories[holder.name]
        saving, node = self._saving(holder), None
        if saving:
            node = self.cut.node()
            index = self._line_to_run(holder)
            self.cut.edge(SOURCE if index is None else self._again(index), node, saving)
        self.memories[holder.name] = node
        return node

    # ---- lines ---------------------------------------------------------------------------------------------------

    def _price(self, index: int) -> int | None:
        """What running the line a second time costs; None when it may not be."""
        if index not in self.prices:
            self.prices[index] = self._new_price(index)
        return self.prices[index]

    def _new_price(self, index: int) -> int | None:
        if index in self.dependence.fixed or self.work[index] is Work.ONCE:
            return None
        if any(proxy.name in self.dependence.joint.recomputed for proxy in self.dependence.outputs[index]):
            return 0  # as the program asks for
        if any(proxy.name in self.dependence.joint.repeated for proxy in self.dependence.inputs[index]):
            # When backward calls repeated lines follows from its formulas, not from costs: they may be collectives, for
            # which all processes have to agree, also where they work on different sizes.
            return None
        policy = self.later if index in self.ending else self.policy
        return policy.price(self.lines_of_trace[index], self.work[index])

    def _line_to_run(self, holder: TensorProxy) -> int | None:
        """The line that can make a memory in backward."""
        index = self.dependence.definitions.get(holder.name)
        if index is None or index in self.dependence.fixed:
            return None
        return None if index in self.dependence.forward and self._price(index) is None else index

    def _again(self, index: int) -> int:
        if index not in self.again:
            self.again[index] = self.cut.node()
            self.waiting.append(index)
        return self.again[index]

    def _first(self, index: int) -> int:
        if index not in self.first:
            self.first[index] = self.cut.node()
        return self.first[index]

    def _connect(self, index: int) -> None:
        """The edges into the nodes of a line."""
        holders = {proxy.name: proxy for proxy in map(self._holder, self.dependence.inputs[index]) if proxy is not None}
        for holder in holders.values():
            node = self._memory(holder)
            if node is not None:
                self.cut.edge(node, self.again[index], UNBOUNDED)
        price = self._price(index)
        paid = UNBOUNDED if price is None else price
        if index in self.dependence.forward:
            self.cut.edge(SOURCE, self.again[index], paid)
            return
        self.cut.edge(self.again[index], self._first(index), UNBOUNDED)
        self.cut.edge(self._first(index), self.again[index], paid)
        for name in holders:
            before = self.dependence.definitions.get(name)
            if before is not None and before not in self.dependence.forward:
                self.cut.edge(self._first(index), self._first(before), UNBOUNDED)

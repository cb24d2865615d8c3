"""Which values (residuals) the forward loop keeps for the backward loop: the fewest bytes that give the rest cheaply.

`jax.linearize` needs a coefficient per operation (of tanh, 1 - tanh²; of a product of two gates, both), many of which
are cheap functions of each other. Keeping all of them costs memory and time. A minimum cut of the step's graph between
what is expensive to compute (products, tanh, the carry) and what the derivative needs finds the smallest set to keep.
"""

from collections import deque
from collections.abc import Hashable, Sequence

from jax.extend import core

from lapwing import jaxprs

# By name, since not every release of jax has all of them.
CHEAP = frozenset(
    {
        "abs", "add", "add_any", "and", "broadcast_in_dim", "clamp", "convert_element_type", "copy", "eq",
        "expand_dims", "ge", "gt", "imag", "integer_pow", "le", "lt", "max", "min", "mul", "ne", "neg", "not",
        "one_minus_square", "or", "real", "reshape", "select_n", "sign", "slice", "split", "square", "squeeze",
        "stop_gradient", "sub", "transpose",
    }
)  # fmt: skip


def is_cheap(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name in CHEAP


def values_to_keep(
    eqns: Sequence[core.JaxprEqn],
    needed: Sequence[core.Var],
    free: set[core.Var],
    carry: Sequence[core.Var],
) -> list[core.Var]:
    """The fewest bytes of variables from which, with the `free` ones, cheap equations compute the `needed` ones."""
    expensive = [*carry, *(v for eqn in eqns if not is_cheap(eqn) for v in eqn.outvars)]
    edges = [
        (source, target)
        for eqn in eqns
        if is_cheap(eqn)
        for source in jaxprs.variables(eqn.invars)
        for target in eqn.outvars
    ]
    return minimum_cut(
        [(a, b) for a, b in edges if a not in free and b not in free],
        [v for v in expensive if v not in free],
        [v for v in needed if v not in free],
    )


Edge = tuple[core.Var, core.Var]


def minimum_cut(edges: list[Edge], sources: list[core.Var], sinks: list[core.Var]) -> list[core.Var]:
    """Variables of least total bytes that every path from a source to a sink crosses (maximum flow, Edmonds-Karp).

    Each variable is two nodes, entry and exit, joined by an edge with its bytes as capacity.
    """
    network = _Network()
    variables = dict.fromkeys([*sources, *sinks, *(v for edge in edges for v in edge)])
    for v in variables:
        network.connect((v, "entry"), (v, "exit"), jaxprs.nbytes(v) + 1)
    for a, b in edges:
        network.connect((a, "exit"), (b, "entry"))
    for v in sources:
        network.connect("source", (v, "entry"))
    for v in sinks:
        network.connect((v, "exit"), "sink")
    network.saturate("source", "sink")
    # Of all cuts of this size, the last: what is kept there need not be computed again.
    ends = network.reaching("sink")
    return [v for v in variables if (v, "exit") in ends and (v, "entry") not in ends]


class _Network:
    def __init__(self):
        self.capacity: dict[Hashable, dict[Hashable, int]] = {}

    def connect(self, a: Hashable, b: Hashable, amount: int = 1 << 62):
        self.capacity.setdefault(a, {})[b] = amount
        self.capacity.setdefault(b, {}).setdefault(a, 0)

    def saturate(self, source: Hashable, sink: Hashable):
        """Push flow until no path is left."""
        while sink in (parent := self._reach(source)):
            path = [sink]
            while path[-1] != source:
                path.append(parent[path[-1]])
            steps = list(zip(path[1:], path, strict=False))
            amount = min(self.capacity[a][b] for a, b in steps)
            for a, b in steps:
                self.capacity[a][b] -= amount
                self.capacity[b][a] += amount

    def reaching(self, end: Hashable) -> set[Hashable]:
        """The nodes from which flow could still reach the end."""
        found, queue = {end}, deque([end])
        while queue:
            node = queue.popleft()
            for other in self.capacity.get(node, {}):
                if self.capacity[other][node] > 0 and other not in found:
                    found.add(other)
                    queue.append(other)
        return found

    def _reach(self, start: Hashable) -> dict[Hashable, Hashable]:
        parent = {start: start}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for other, left in self.capacity.get(node, {}).items():
                if left > 0 and other not in parent:
                    parent[other] = node
                    queue.append(other)
        return parent

"""Which values (residuals) the forward loop keeps for the backward loop: the fewest bytes that give the rest cheaply.

`jax.linearize` needs a coefficient per operation (of tanh, 1 - tanh²; of a product of two gates, both), many of which
are cheap functions of each other. Keeping all of them costs memory and time. A minimum cut of the step's graph between
what is expensive to compute (products, tanh, the carry) and what the derivative needs finds the smallest set to keep.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

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
    """Variables of least total bytes that every path from a source to a sink crosses, nearest to the sinks.

    One that is both source and sink is in every cut. Without these, few variables are left on a path.
    """
    both = set(sources) & set(sinks)
    after = _reached((edge for edge in edges if both.isdisjoint(edge)), set(sources) - both)
    before = _reached(((b, a) for a, b in edges if both.isdisjoint((a, b))), set(sinks) - both)
    between = after & before
    variables = dict.fromkeys([*sources, *sinks, *(v for edge in edges for v in edge)])
    number = {v: n for n, v in enumerate(v for v in variables if v in between)}
    # Each variable is two nodes, entry and exit, joined by an edge with its bytes as capacity.
    network = Network(2 * len(number) + 2)
    source, sink = 2 * len(number), 2 * len(number) + 1
    for v, n in number.items():
        network.connect(2 * n, 2 * n + 1, jaxprs.nbytes(v) + 1)
    for a, b in edges:
        if a in number and b in number:
            network.connect(2 * number[a] + 1, 2 * number[b])
    for v in between.intersection(sources):
        network.connect(source, 2 * number[v])
    for v in between.intersection(sinks):
        network.connect(2 * number[v] + 1, sink)
    network.saturate(source, sink)
    # Of all cuts of this size, the last: what is kept there need not be computed again.
    ends = network.reaching(sink)
    cut = {v for v, n in number.items() if 2 * n + 1 in ends and 2 * n not in ends}
    return [v for v in variables if v in both or v in cut]


def _reached(edges: Iterable[Edge], start: set[core.Var]) -> set[core.Var]:
    """`start` and all that the edges lead to from it."""
    following = defaultdict(list)
    for a, b in edges:
        following[a].append(b)
    reached, waiting = set(start), list(start)
    while waiting:
        new = [v for v in following[waiting.pop()] if v not in reached]
        reached.update(new)
        waiting += new
    return reached


class Network:
    """A flow network on numbered nodes. Edge 2k and 2k + 1 are the two directions of one."""

    def __init__(self, size: int):
        self.edges: list[list[int]] = [[] for _ in range(size)]
        self.target: list[int] = []
        self.left: list[int] = []

    def connect(self, a: int, b: int, capacity: int = 1 << 62) -> None:
        for node, target, left in ((a, b, capacity), (b, a, 0)):
            self.edges[node].append(len(self.target))
            self.target.append(target)
            self.left.append(left)

    def saturate(self, source: int, sink: int) -> None:
        """Push flow until no path is left (Dinic's algorithm)."""
        while (distance := self._distances(source))[sink] >= 0:
            tried = [0] * len(self.edges)
            while path := self._path(source, sink, distance, tried):
                amount = min(self.left[edge] for edge in path)
                for edge in path:
                    self.left[edge] -= amount
                    self.left[edge ^ 1] += amount

    def reaching(self, end: int) -> set[int]:
        """The nodes from which flow could still reach the end."""
        found, waiting = {end}, [end]
        while waiting:
            back = (edge for edge in self.edges[waiting.pop()] if self.left[edge ^ 1])
            new = {self.target[edge] for edge in back} - found
            found |= new
            waiting += new
        return found

    def _distances(self, source: int) -> list[int]:
        """Each node's distance from the source, -1 where flow cannot reach it."""
        distance = [-1] * len(self.edges)
        distance[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self.edges[node]:
                other = self.target[edge]
                if self.left[edge] and distance[other] < 0:
                    distance[other] = distance[node] + 1
                    queue.append(other)
        return distance

    def _path(self, node: int, sink: int, distance: list[int], tried: list[int]) -> list[int]:
        """The edges of a shortest path; none if there is none. The first `tried` edges of a node lead nowhere."""
        path: list[int] = []
        while node != sink:
            if tried[node] == len(self.edges[node]):
                if not path:
                    break
                node = self.target[path.pop() ^ 1]
                tried[node] += 1
                continue
            edge = self.edges[node][tried[node]]
            if self.left[edge] and distance[self.target[edge]] == distance[node] + 1:
                path.append(edge)
                node = self.target[edge]
            else:
                tried[node] += 1
        return path

"""The strongly connected components of a graph, and the depth of every node."""

from collections.abc import Iterator, Mapping
from typing import Any

Node = Any  # hashable and sortable


def depths(edges: Mapping[Node, set[Node]]) -> dict[Node, tuple[int, bool]]:
    """For each node the longest chain of components that it depends on, and whether it is part of a loop. `edges`
    has the nodes that a node depends on.

    >>> depths({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d", "a"}})
    {'b': (0, True), 'c': (0, True), 'a': (1, False), 'd': (2, True)}
    """
    found: dict[Node, tuple[int, bool]] = {}
    for component in _components(edges):
        outside = [
            found[source][0] for node in component for source in edges[node] if source not in component
        ]
        in_loop = len(component) > 1 or any(node in edges[node] for node in component)
        found |= {node: (max(outside, default=-1) + 1, in_loop) for node in sorted(component)}
    return found


def _components(edges: Mapping[Node, set[Node]]) -> Iterator[set[Node]]:
    """Tarjan's algorithm without recursion; a component comes after all that it depends on."""
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in sorted(edges):
        if root in number:
            continue
        path: list[tuple[Node, Iterator[Node]]] = []
        _enter(root, edges, number, lowest, stack, on_stack, path)
        while path:
            node, sources = path[-1]
            source = next(sources, None)
            if source is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    yield _leave(node, stack, on_stack)
            elif source not in number:
                _enter(source, edges, number, lowest, stack, on_stack, path)
            elif source in on_stack:
                lowest[node] = min(lowest[node], number[source])


def _enter(node, edges, number, lowest, stack, on_stack, path) -> None:
    number[node] = lowest[node] = len(number)
    stack.append(node)
    on_stack.add(node)
    path.append((node, iter(sorted(edges[node]))))


def _leave(node, stack, on_stack) -> set:
    component = set()
    while node not in component:
        component.add(stack.pop())
    on_stack -= component
    return component

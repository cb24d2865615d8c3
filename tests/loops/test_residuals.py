"""The minimum cut that chooses what is kept: right on random graphs, and found by few searches."""

import itertools
import random

import jax
import jax.numpy as jnp
import pytest

from lapwing.jaxprs import nbytes
from lapwing.loops._residuals import Network, minimum_cut


def variables(number: int, rng: random.Random):
    shapes = [jax.ShapeDtypeStruct((rng.randint(1, 4),), jnp.float32) for _ in range(number)]
    return jax.make_jaxpr(lambda *xs: xs)(*shapes).jaxpr.invars


def separates(cut, edges, sources, sinks) -> bool:
    reached = {v for v in sources if v not in cut}
    for _ in edges:
        reached |= {b for a, b in edges if a in reached and b not in cut}
    return reached.isdisjoint(sinks)


def cost(cut) -> int:
    return sum(nbytes(v) + 1 for v in cut)


@pytest.mark.parametrize("seed", range(25))
def test_the_cut_is_the_cheapest_of_all_subsets(seed):
    rng = random.Random(seed)
    v = variables(7, rng)
    edges = [(a, b) for a, b in itertools.combinations(v, 2) if rng.random() < 0.4]
    sources, sinks = rng.sample(v[:5], 2), rng.sample(v[2:], 2)
    cut = minimum_cut(edges, sources, sinks)
    subsets = [set(s) for n in range(8) for s in itertools.combinations(v, n)]
    cheapest = min(cost(s) for s in subsets if separates(s, edges, sources, sinks))
    assert separates(set(cut), edges, sources, sinks)
    assert cost(cut) == cheapest


def test_many_paths_are_found_in_one_search(monkeypatch):
    """One search of the graph for each path made the time to trace grow with the square of the step's size."""
    searches = []
    search = Network._distances
    monkeypatch.setattr(Network, "_distances", lambda *args: searches.append(1) or search(*args))
    rng = random.Random(0)
    v = variables(300, rng)
    paths = list(zip(v[:100], v[100:200], v[200:], strict=True))
    edges = [edge for path in paths for edge in itertools.pairwise(path)]
    cut = minimum_cut(edges, v[:100], v[200:])
    assert cost(cut) == sum(min(nbytes(each) + 1 for each in path) for path in paths)
    assert len(searches) == 2

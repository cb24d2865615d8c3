"""Random V-values. Leaves are small whole numbers, so that sums and products are exact and laws hold to the
last bit.
"""

from hypothesis import strategies as st

LEAF_KEYS = ["a", "b", "c", ":number"]
BRANCH_KEYS = ["X", "Y", "Z"]

numbers = st.integers(-8, 8).map(float)


def consistent_trees(leaf=numbers):
    """Trees in which a key is always a leaf or always a branch, and no branch is empty."""
    leaves = st.dictionaries(st.sampled_from(LEAF_KEYS), leaf, min_size=1, max_size=3)

    def with_branches(inner):
        branches = st.dictionaries(st.sampled_from(BRANCH_KEYS), inner, min_size=1, max_size=3)
        return st.tuples(st.just({}) | leaves, branches).map(lambda both: {**both[0], **both[1]})

    return st.just({}) | st.recursive(leaves, with_branches, max_leaves=6)


def any_trees(leaf=numbers):
    """Trees in which the same key may be a leaf in one and a branch in the other."""
    keys = st.sampled_from([*LEAF_KEYS, *BRANCH_KEYS])
    return st.recursive(
        leaf, lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3), max_leaves=8
    )


def chain(depth: int, leaf: float = 1.0) -> dict:
    """One leaf, this deep."""
    tree: dict = {"a": leaf}
    for _ in range(depth - 1):
        tree = {"a": tree}
    return tree

"""Which links the others replace."""

import numpy as np

from lapwing.synthesis import SynthesisConfig, _synthesize
from lapwing.synthesis._surgeon import replaceable, surgery

from .test_synthesize import examples, student


def test_predictions_are_those_of_least_squares_without_the_link():
    draw = np.random.default_rng(0)
    slopes, at, weights = draw.normal(size=(9, 5)), draw.normal(size=9), draw.normal(size=5)
    found = surgery(lambda w: at + slopes @ w, weights, np.ones(5, bool), 3)
    kept = np.ones(5, bool)
    for link, error, moved in zip(*found, strict=True):
        best = {}
        for q in np.flatnonzero(kept):
            rest = kept.copy()
            rest[q] = False
            best[q] = np.linalg.lstsq(slopes[:, rest], -at, rcond=None)[1][0]
        assert link == min(best, key=best.__getitem__)
        kept[link] = False
        np.testing.assert_allclose(error, best[link], rtol=1e-2)
        assert not moved[~kept].any()
        np.testing.assert_allclose(np.sum((at + slopes @ moved) ** 2), error, rtol=1e-6)


def test_a_link_that_may_not_be_cut_is_not_cut():
    found = surgery(lambda w: w - [0.0, 2.0], np.array([0.1, 2.0]), np.array([False, True]), 2)
    assert found.links == [1]


def machine(wirings, **weights):
    """Leaves and kept links of the student, with these weights by the names of the links."""
    leaves, kept = wirings.start.copy(), ~wirings.soft
    names = wirings.names(np.ones(len(leaves), bool))
    for name, weight in weights.items():
        leaves[names.index(name)], kept[names.index(name)] = weight, True
    return leaves, kept, names


def test_one_of_two_links_that_share_their_work_is_cut_and_the_other_takes_all_of_it():
    wirings = _synthesize.wirings_of(examples(), student(), SynthesisConfig(starts=1))
    right = {
        "accum.dict-2 ← input.char": 1.0,
        "dot.dict-1 ← accum.dict": 1.0,
        "dot.dict-2 ← eos.char": 1.0,
        "output.dict-1 ← dot.dot": 0.5,
    }
    more = {"norm.dict ← dot.dot": 1.0, "output.dict-1 ← norm.norm": 0.5}
    leaves, kept, names = machine(wirings, **right, **more)
    whole = np.ones_like(kept)
    soft = np.flatnonzero(kept & wirings.soft)
    alone = [wirings.errors(whole, leaves, (kept & (np.arange(len(kept)) != i))[None])[0] for i in soft]
    assert min(alone) > 1, "without any one link alone the error is large"
    found = replaceable(wirings, whole, leaves, kept, links=soft, count=1, within=0.1)
    gone = {names[i] for i in found.links}
    assert gone <= {*more, "output.dict-1 ← dot.dot"}
    assert found.error < min(alone) / 4

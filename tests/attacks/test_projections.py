"""Projections against linear and quadratic programs, and against what makes a projection one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from lapwing.attacks import L1, L2, Linf
from lapwing.attacks._apgd import project_l1
from lapwing.attacks._fab import to_plane
from lapwing.attacks._norms import shrink

BOX = (0.0, 1.0)
SIZE = 6


@pytest.mark.parametrize("eps", [0.05, 0.7, 4.0])
def test_the_l1_projection_is_inside_and_nothing_inside_is_closer(eps: float):
    """p is the projection of y if no z inside has (y - p)·(z - p) > 0. The z with the largest product is known: it
    spends eps where y - p is largest."""
    random = np.random.default_rng(0)
    images = random.uniform(0, 1, (40, SIZE)).astype(np.float32)
    images[:4], images[4:8] = 0.0, 1.0
    wanted = random.normal(0, 1, images.shape).astype(np.float32)
    found = np.asarray(jax.jit(project_l1, static_argnums=3)(images, wanted, eps, BOX), np.float64)
    assert np.abs(found).sum(1).max() <= eps + 1e-6
    assert (images + found).min() >= -1e-6
    assert (images + found).max() <= 1 + 1e-6
    for image, p, y in zip(images, found, wanted, strict=True):
        slope = y - p
        room, left, best = np.where(slope > 0, 1 - image, image), eps, 0.0
        for i in np.argsort(-np.abs(slope)):
            moved = min(room[i], left)
            best, left = best + abs(slope[i]) * moved, left - moved
        assert slope @ p >= best - 1e-5


def test_projected_twice_is_projected_once_and_what_is_inside_stays():
    rows = jnp.abs(jax.random.normal(jax.random.key(0), (20, SIZE)))
    once = shrink(rows, None, jnp.float32(1.0))
    np.testing.assert_allclose(shrink(once, None, jnp.float32(1.0)), once, atol=1e-6)
    np.testing.assert_array_equal(shrink(rows / 100, None, jnp.float32(1.0)), rows / 100)
    np.testing.assert_allclose(jnp.sum(once, axis=1), 1.0, atol=1e-6)


def reference(point: np.ndarray, slope: np.ndarray, offset: float, norm: object) -> tuple[float, bool]:
    """The length of the shortest move onto the plane inside the box, by a solver of SciPy; whether there is one."""
    walls = list(zip(-point, 1 - point, strict=True))
    eye = np.eye(SIZE)
    if isinstance(norm, L2):
        start = optimize.linprog(np.zeros(SIZE), A_eq=[slope], b_eq=[-offset], bounds=walls)
        if not start.success:
            return 0.0, False
        plane = {"type": "eq", "fun": lambda move: slope @ move + offset, "jac": lambda _: slope}
        found = optimize.minimize(
            lambda move: move @ move, start.x, jac=lambda move: 2 * move, bounds=walls, constraints=[plane],
            method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        return float(np.sqrt(found.fun)), True
    # Bounds on the absolute values: one for all pixels, or one for each.
    bounds = np.ones((SIZE, 1)) if isinstance(norm, Linf) else eye
    rows = np.block([[eye, -bounds], [-eye, -bounds]])
    cost = np.r_[np.zeros(SIZE), np.ones(bounds.shape[1])]
    found = optimize.linprog(
        cost, A_ub=rows, b_ub=np.zeros(2 * SIZE), A_eq=[np.r_[slope, np.zeros(bounds.shape[1])]], b_eq=[-offset],
        bounds=[*walls, *[(0, None)] * bounds.shape[1]],
    )  # fmt: skip
    return (found.fun, True) if found.success else (0.0, False)


@pytest.mark.parametrize("norm", [Linf(), L2(), L1()], ids=str)
def test_moves_onto_a_plane_are_the_shortest(norm):
    random = np.random.default_rng(1)
    points = random.uniform(0, 1, (24, SIZE)).astype(np.float32)
    points[:4] = np.round(points[:4])
    slopes = random.normal(0, 1, points.shape).astype(np.float32)
    slopes[::3, 2] = 0.0
    offset = random.normal(0, 1.5, 24).astype(np.float32)
    moves = np.asarray(jax.jit(lambda *args: to_plane(*args, norm, BOX))(points, slopes, offset), np.float64)
    assert (points + moves).min() >= -1e-6
    assert (points + moves).max() <= 1 + 1e-6
    reachable = 0
    for point, slope, c, move in zip(points.astype(float), slopes.astype(float), offset, moves, strict=True):
        length, there_is_one = reference(point, slope, c, norm)
        if there_is_one:
            reachable += 1
            assert abs(slope @ move + c) < 1e-4
            np.testing.assert_allclose(norm.length(jnp.asarray(move)[None])[0], length, rtol=1e-3, atol=1e-4)
        else:  # As close as the box allows.
            walls = np.where(c * slope > 0, -point, np.where(slope != 0, 1 - point, 0.0))
            np.testing.assert_allclose(move, walls, atol=1e-5)
    assert 8 < reachable < 24, "both cases should occur"

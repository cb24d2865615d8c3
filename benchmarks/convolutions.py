"""The network of `Cnn` with each of its convolutions computed in different ways, forward and with the gradient of the
pixels, which is what attacks need: XLA's convolution, a product with a banded matrix, and a product of patches.

On a GPU also in other precisions. Times are medians of rivals that take turns; all are compiled at once.
"""

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench.measure import alternate, environment, main, save
from lapwing.models import Cnn
from lapwing.models._cnn import _by_bands, _by_convolution, _max_pool


@dataclass(frozen=True)
class Config:
    """Ways to compute the convolutions of a small network."""

    width: int = 16
    """width factor of the network"""
    batches: tuple[int, ...] = (2500,)
    """numbers of images"""
    thresholds: int = 0
    """thresholds through which the network sees each pixel"""
    ways: tuple[str, ...] = ()
    """ways of the first and the second convolution, such as bands+convolution; none: all pairs"""
    precisions: tuple[str, ...] = ("float32", "tensorfloat32", "bfloat16")
    """of the products; bfloat16: of all values too"""
    repeats: int = 10
    """calls in one compiled loop"""
    seconds: float = 6.0
    """longest time for the rounds of a batch"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def _by_patches(images: Any, kernel: Any) -> Any:
    """Each pixel's window as a row of a matrix."""
    count, height, width, _ = images.shape
    side = kernel.shape[0]
    edge = side // 2
    padded = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    views = [padded[:, i : i + height, j : j + width] for i in range(side) for j in range(side)]
    rows = jnp.concatenate(views, axis=-1).reshape(count * height * width, -1)
    return (rows @ kernel.reshape(-1, kernel.shape[-1])).reshape(count, height, width, -1)


WAYS = {"convolution": _by_convolution, "bands": _by_bands, "patches": _by_patches}


def run(config: Config) -> dict[str, Any]:
    """Seconds of a call by batch, precision, ways and direction."""
    network = Cnn.init(jax.random.key(0), (28, 28, 1), config.width, thresholds=config.thresholds)
    found: dict[str, Any] = {}
    for batch in map(int, config.batches):
        images = jax.random.uniform(jax.random.key(1), (batch, 28, 28, 1))
        rivals = {
            f"{precision}, {ways}, {direction}": _call(config, network, images, precision, ways, direction)
            for precision in config.precisions
            for ways in config.ways or [f"{first}+{second}" for first in WAYS for second in WAYS]
            for direction in ("forward", "gradient")
        }
        with ThreadPoolExecutor() as threads:
            compiled = dict(zip(rivals, threads.map(lambda call: call(), rivals.values()), strict=True))
        found[str(batch)] = {
            name: seconds / config.repeats
            for name, seconds in alternate(compiled, rounds=5, seconds=config.seconds).items()
        }
        print(f"{batch} images are done", file=sys.stderr, flush=True)
    results = {
        "environment": environment(),
        "config": {**dataclasses.asdict(config), "out": ""},
        "seconds": found,
    }
    save(results, f"convolutions-w{config.width}", config.out)
    return results


def _call(config: Config, network: Cnn, images: Any, precision: str, ways: str, direction: str) -> Any:
    """Compiles a loop of calls, each of which depends on the one before."""
    first, second = (WAYS[way] for way in ways.split("+"))
    half = precision == "bfloat16"

    def scores(network: Cnn, images: Any) -> Any:
        if half:
            network, images = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (network, images))
        n = network
        hidden = jax.nn.relu(_max_pool(first(n._seen(images), n.kernel1)) + n.bias1)
        hidden = jax.nn.relu(_max_pool(second(hidden, n.kernel2)) + n.bias2)
        hidden = jax.nn.relu(hidden.reshape(hidden.shape[0], -1) @ n.dense + n.dense_bias)
        return (hidden @ n.out + n.out_bias).astype(jnp.float32)

    def one(carry: Any, _: Any) -> Any:
        if direction == "forward":
            return carry + 1e-6 * jnp.sum(scores(network, carry)), None
        return carry + 1e-6 * jnp.sign(jax.grad(lambda x: jnp.sum(scores(network, x) ** 2))(carry)), None

    def compiled() -> Any:
        with jax.default_matmul_precision("tensorfloat32" if half else precision):
            loop = jax.jit(lambda images: jax.lax.scan(one, images, length=config.repeats)[0])
            program = loop.lower(images).compile()
        return lambda: program(images)

    return compiled


def show(results: dict[str, Any]) -> None:
    """Prints the fastest first."""
    for batch, found in results["seconds"].items():
        print(f"{batch} images, w = {results['config']['width']}, {results['environment']['device']}")
        for direction in ("forward", "gradient"):
            rows = {name: seconds for name, seconds in found.items() if name.endswith(direction)}
            for name, seconds in sorted(rows.items(), key=lambda row: row[1]):
                print(f"  {name:48} {seconds * 1e3:9.3f} ms")


if __name__ == "__main__":
    main(Config, run, show)

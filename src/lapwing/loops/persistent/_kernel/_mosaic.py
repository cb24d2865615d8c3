"""What a block can do, in words of its own: the only file that talks to Pallas for Hopper GPUs.

Its names differ between releases of jax. What Pallas does not offer is a line of PTX here: barriers that one thread
arrives at, and copies from one block's shared memory into another's.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic.gpu import fragmented_array as fragments
from jax.experimental.mosaic.gpu import utils
from jax.experimental.mosaic.gpu.utils import arith, ir, llvm
from jax.experimental.pallas import mosaic_gpu as plgpu

_NEW = jax.__version_info__ >= (0, 11)
_OUT, _SCRATCH = ("out_type", "scratch_types") if _NEW else ("out_shape", "scratch_shapes")
Ref = Any

span, when = pl.ds, pl.when
_pallas: Any = plgpu
_inline = _pallas.inline_mgpu
_NUMBER = plgpu.Layout.WG_SPLAT(())


def kernel(
    body: Callable[..., None],
    grid: tuple[int, int],
    cluster: int,
    outputs: Sequence[jax.ShapeDtypeStruct],
    scratch: Any,
    inputs: int,
    approximate: bool,
) -> Callable[..., Any]:
    """A kernel of `grid[0] * grid[1] * cluster` blocks: `body(inputs, outputs, scratch)`, all of them references.

    With `approximate`, functions such as tanh have eleven exact bits, which are more than bfloat16 holds.
    """
    leaves, tree = jax.tree.flatten(scratch, is_leaf=lambda value: not isinstance(value, list | dict))

    def flat(*refs: Ref) -> None:
        rest = refs[inputs:]
        body(refs[:inputs], rest[: len(outputs)], tree.unflatten(rest[len(outputs) :]))

    # The compiler would put a barrier of the block around every load and store. Ours are those that are needed.
    parameters = plgpu.CompilerParams(
        lowering_semantics=plgpu.LoweringSemantics.Lane,
        unsafe_no_auto_barriers=True,
        approx_math=approximate,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return plgpu.kernel(
            flat,
            grid=grid,
            grid_names=("groups", "clusters"),
            cluster=(cluster,),
            cluster_names=("peers",),
            compiler_params=parameters,
            **{_OUT: list(outputs), _SCRATCH: leaves},
        )


# Memory -------------------------------------------------------------------------------------------------------


def shared(shape: Sequence[int], kind: Any) -> Any:
    """Shared memory in the order of its axes."""
    return plgpu.SMEM(tuple(shape), kind)


def operand(shape: Sequence[int], kind: Any, width: int) -> Any:
    """Shared memory for an operand of the tensor cores, of which pieces of `width` columns are used."""
    return plgpu.SMEM(tuple(shape), kind, transforms=_swizzled(width, kind))


def _swizzled(width: int, kind: Any) -> tuple[Any, Any]:
    columns = swizzle_columns(width, jnp.dtype(kind).itemsize)
    if columns is None:
        raise ValueError(f"no layout of the tensor cores for {width} columns of {kind}")
    return plgpu.TilingTransform((8, columns)), plgpu.SwizzleTransform(columns * jnp.dtype(kind).itemsize)


def swizzle_columns(width: int, itemsize: int) -> int | None:
    """The columns of a tile of an operand, of which pieces of `width` columns are used; None if there is no way."""
    return next((size // itemsize for size in (128, 64, 32) if width % (size // itemsize) == 0), None)


def arrivals(copies: int, count: int = 1) -> Any:
    """`count` barriers, each complete when `copies` copies into shared memory are."""
    return plgpu.Barrier(num_arrivals=copies, num_barriers=count)


def lanes(units: int) -> int:
    """Lanes of a warp next to each other that hold units of one row."""
    return math.gcd(units, 32)


def layout(rows: int, units: int) -> Any:
    """How the threads of a block hold (rows, units): warps share out the rows, the lanes of a warp units first."""
    wide = lanes(units)
    high = 32 // wide
    if rows % (4 * high):
        raise ValueError(f"{rows} rows of {units} units cannot be shared out among 128 threads")
    tiled = fragments.TiledLayout(
        fragments.Tiling(((4 * high, wide), (high, wide), (1, 1))),
        warp_dims=(-6,),
        lane_dims=(-4, -3),
        vector_dim=-1,
        _check_canonical=False,
    ).canonicalize()
    return plgpu.Layout.TILED(tiled.tiling, tiled.warp_dims, tiled.lane_dims, tiled.vector_dim)


def load(ref: Ref, how: Any) -> jax.Array:
    index = () if _NEW else ((),)
    return plgpu.load(ref, *index, layout=how, optimized=False)


def columns(shape: Sequence[int], how: Any) -> jax.Array:
    """The number of each number's column."""
    return plgpu.broadcasted_iota(jnp.int32, shape, 1, layout=how)


def transposed(ref: Ref) -> Ref:
    return ref.transpose((1, 0)) if _NEW else plgpu.transpose_ref(ref, (1, 0))


def laid_out(value: jax.Array, how: Any) -> jax.Array:
    return plgpu.layout_cast(value, how)


fetch = plgpu.copy_gmem_to_smem
arrived = plgpu.barrier_wait
commit = plgpu.commit_smem
"""All threads of the block have written, and copies see it."""


def as_multiplied(value: jax.Array) -> jax.Array:
    """Rounded to what the tensor cores multiply. Of float32 they read ten bits of the fraction, and would cut off the
    others: numbers would shrink, and their errors add up instead of cancelling."""
    if value.dtype != jnp.float32:
        return value
    bits = jax.lax.bitcast_convert_type(value, jnp.int32)
    rounded = jax.lax.bitcast_convert_type((bits + (1 << 12)) & ~((1 << 13) - 1), jnp.float32)
    return jnp.where(value == value, rounded, value)  # What is not a number stays so.


def multiply(
    rows: int,
    columns: int,
    pieces: Sequence[Callable[[], tuple[Ref, Ref]]],
    read: Callable[[int], None] | None = None,
) -> jax.Array:
    """The sum of (rows, k) by (columns, k) transposed over the pieces, each of which waits for its operands.

    `read(i)` is called when no warp needs the operands of piece i any more.
    """

    def products(sums: Ref) -> jax.Array:
        for index, piece in enumerate(pieces):
            left, right = piece()
            plgpu.wgmma(sums, left, transposed(right))
            if index and read is not None:
                plgpu.wgmma_wait(1)
                commit()  # A warp waits for itself alone, and `read` may let one thread overwrite what all read.
                read(index - 1)
        return sums[...]

    return pl.run_scoped(products, _pallas.ACC((rows, columns), jnp.float32))


def note_clock(ref: Ref, index: Any) -> None:
    """Write down the clock of the multiprocessor."""

    @_inline(arg_types=(plgpu.RefType(), _NUMBER))
    def note(_: Any, ref: Any, index: Any) -> None:
        wide = ir.IntegerType.get_signless(64)
        start = llvm.ptrtoint(wide, utils.memref_ptr(ref))
        place = arith.addi(start, arith.extui(wide, arith.muli(_value(index), _i32(4))))
        _ptx(
            "{ .reg .u32 now; mov.u32 now, %clock; @$0 st.global.u32 [$1], now; }",
            "b,l",
            _one_thread(),
            place,
        )

    note(ref, index)


# Waiting for other blocks -------------------------------------------------------------------------------------


def counters(count: int) -> Ref:
    """Counters in global memory that all blocks see. They are zero, and must be left so."""
    return pl.get_global(plgpu.SemaphoreType.REGULAR((count,)))


def count(counter: Ref) -> None:
    """Add one, after all that this block has written."""
    plgpu.semaphore_signal(counter, memory_scope="gpu")


PATIENCE = 1 << 26
"""How often a counter is looked at: about half a minute. A kernel that is stuck ends, with an error of CUDA's."""


def counted(counter: Ref, least: Any) -> None:
    """Wait until there are that many; what their blocks wrote before is there, for copies too."""

    @_inline(arg_types=(plgpu.RefType(), _NUMBER))
    def wait(_: Any, ref: Any, least: Any) -> None:
        asm = (
            "{ .reg .pred low, late; .reg .u32 now, looks; mov.u32 looks, 0; @!$0 bra D${:uid}; "
            "L${:uid}: ld.relaxed.gpu.global.u32 now, [$1]; add.u32 looks, looks, 1; "
            f"setp.gt.u32 late, looks, {PATIENCE}; @late trap; "
            "setp.lt.u32 low, now, $2; @low bra L${:uid}; fence.acq_rel.gpu; D${:uid}: }"
        )
        place = llvm.ptrtoint(ir.IntegerType.get_signless(64), utils.memref_ptr(ref))
        _ptx(asm, "b,l,r", _one_thread(), place, _value(least))
        utils.warpgroup_barrier()
        _ptx("fence.proxy.async;", "")

    wait(counter, least)


def reset(counter: Ref, value: Any) -> None:
    """Wait until the counter is there, and set it to zero."""
    pl.semaphore_wait(counter, value)


# Between the blocks of a cluster ------------------------------------------------------------------------------


def flags(number: int) -> Any:
    """Shared memory for barriers of our own: `number` of them, of 8 bytes."""
    return plgpu.SMEM((2 * number,), jnp.int32)


def set_up(barriers: Ref, number: int) -> None:
    """One arrival and the expected bytes complete each."""

    @_inline(arg_types=(plgpu.RefType(),))
    def init(_: Any, ref: Any) -> None:
        for index in range(number):
            _ptx(
                "@$0 mbarrier.init.shared::cta.b64 [$1], 1;", "b,r", _one_thread(), _barrier(ref, _i32(index))
            )
        _ptx("fence.mbarrier_init.release.cluster;", "")

    init(barriers)
    all_here()


def all_here() -> None:
    """Wait for all blocks of the cluster."""
    _ptx_line("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")


def expect(barriers: Ref, index: Any, nbytes: int) -> None:
    @_inline(arg_types=(plgpu.RefType(), _NUMBER))
    def arrive(_: Any, ref: Any, index: Any) -> None:
        asm = "@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], $2;"
        _ptx(asm, "b,r,r", _one_thread(), _barrier(ref, _value(index)), _i32(nbytes))

    arrive(barriers, index)


def received(barriers: Ref, index: Any, parity: Any) -> None:
    """Wait until what was expected is there; the parity is that of how often it was before."""

    @_inline(arg_types=(plgpu.RefType(), _NUMBER, _NUMBER))
    def wait(_: Any, ref: Any, index: Any, parity: Any) -> None:
        asm = (
            "{ .reg .pred p; L${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
            "@!p bra L${:uid}; }"
        )
        _ptx(asm, "r,r", _barrier(ref, _value(index)), _value(parity))

    wait(barriers, index, parity)


def send(
    source: Ref,
    target: Ref,
    barriers: Ref,
    index: Any,
    peers: Sequence[Any],
    nbytes: int,
    kept_as: tuple[Any, ...] = (),
) -> None:
    """Copy shared memory to the same place of each peer, whose barrier learns of it. `commit` comes before."""
    ref = plgpu.RefType(kept_as)

    @_inline(arg_types=(ref, ref, plgpu.RefType(), _NUMBER, *[_NUMBER] * len(peers)))
    def copy(_: Any, source: Any, target: Any, barriers: Any, index: Any, *peers: Any) -> None:
        asm = (
            "{ .reg .b32 to, told; mapa.shared::cluster.u32 to, $1, $4; mapa.shared::cluster.u32 told, $3, $4; "
            "@$0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            "[to], [$2], $5, [told]; }"
        )
        places = _address(target), _address(source), _barrier(barriers, _value(index))
        for peer in peers:
            _ptx(asm, "b,r,r,r,r,r", _one_thread(), *places, _value(peer), _i32(nbytes))

    copy(source, target, barriers, index, *map(jnp.int32, peers))


def kept_as(memory: Any) -> tuple[Any, ...]:
    """How shared memory is kept, for `send`."""
    return tuple(memory.transforms)


def _ptx(asm: str, constraints: str, *operands: Any) -> None:
    llvm.inline_asm(
        ir.Type.parse("!llvm.void"), list(operands), asm, constraints, has_side_effects=True, asm_dialect=0
    )


def _ptx_line(asm: str) -> None:
    @_inline()
    def line(_: Any) -> None:
        _ptx(asm, "")

    line()


def _i32(value: int) -> Any:
    return arith.constant(ir.IntegerType.get_signless(32), value)


def _value(number: Any) -> Any:
    return number.registers.flat[0]


def _address(ref: Any) -> Any:
    return llvm.ptrtoint(ir.IntegerType.get_signless(32), utils.memref_ptr(ref))


def _barrier(ref: Any, index: Any) -> Any:
    return arith.addi(_address(ref), arith.muli(index, _i32(8)))


def _one_thread() -> Any:
    return utils.single_thread_predicate(utils.ThreadSubset.WARPGROUP)

"""Compiles a function in LLVM's language, and makes it a target that XLA can call."""

import ctypes
import ctypes.util
import hashlib
import threading
from typing import Any

import jax

from ._write import IN_LIBRARY

_lock = threading.Lock()
_known: dict[str, Any] = {}  # what a compiled function lives in; for as long as the process


def target_of(text: str, given: int, made: int) -> str:
    """The name of the target for `@function`, which takes a pointer for each array given and made.

    It is made of the text, so that a program that XLA keeps on disk finds the same function in another process."""
    import llvmlite.binding as llvm  # pyright: ignore[reportMissingImports]

    host = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    name = "lapwing_dmm_" + hashlib.sha256("\n".join([text, *host]).encode()).hexdigest()[:32]
    with _lock:
        if name not in _known:
            module = "\n".join([text, _handler(name, given, made)])
            _known[name] = _compiled(llvm, module, *host)
            address = _known[name][0].get_function_address(name)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
    return name


def _compiled(llvm: Any, text: str, cpu: str, features: str) -> Any:
    if not _known:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _add_library(llvm)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, jit=True
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.slp_vectorization = tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine, machine


def _add_library(llvm: Any) -> None:
    """The functions of C that the code calls, where the process has them."""
    libraries = [ctypes.CDLL(ctypes.util.find_library("m")), ctypes.CDLL(None)]
    of_floats = [f"{name}f" for name in IN_LIBRARY.values()]
    for name in [*IN_LIBRARY.values(), *of_floats, "memcpy", "memset", "memmove"]:
        found = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        if found is not None:
            llvm.add_symbol(name, ctypes.cast(found, ctypes.c_void_p).value)


def _handler(name: str, given: int, made: int) -> str:
    """What XLA calls: it finds the arrays in the frame of the call (xla/ffi/api/c_api.h, which jaxlib includes).

    At offset 8 of the frame is a list of extensions; one of kind 1 asks for the version of the interface that the
    handler was written for. The arrays given are at 72 and those made at 112, each with its data at 24.
    """
    arrays, names = [], []
    for side, table, count in (("given", 72, given), ("made", 112, made)):
        arrays += [
            f"  %{side}.at = getelementptr i8, ptr %frame, i64 {table}",
            f"  %{side} = load ptr, ptr %{side}.at",
        ]
        for i in range(count):
            names.append(f"ptr %{side}{i}")
            arrays += [
                f"  %{side}{i}.entry = getelementptr ptr, ptr %{side}, i64 {i}",
                f"  %{side}{i}.array = load ptr, ptr %{side}{i}.entry",
                f"  %{side}{i}.data = getelementptr i8, ptr %{side}{i}.array, i64 24",
                f"  %{side}{i} = load ptr, ptr %{side}{i}.data",
            ]
    return f"""
define ptr @{name}(ptr %frame) nounwind {{
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %extended = icmp ne ptr %extension, null
  br i1 %extended, label %asked, label %run
asked:
  %kind.at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind.at
  %version = icmp eq i32 %kind, 1
  br i1 %version, label %answer, label %run
answer:
  %metadata.at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata.at
  %major = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 28
  store i32 3, ptr %minor
  %traits = getelementptr i8, ptr %metadata, i64 32
  store i32 0, ptr %traits
  ret ptr null
run:
{chr(10).join(arrays)}
  call void @function({", ".join(names)})
  ret ptr null
}}
"""

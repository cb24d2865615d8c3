"""What a run uses of its machine: that the samples are right, few, and do not disturb the run."""

# ruff: noqa: N802 - the names of NVML

import gc
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lapwing.journal import Run, _system
from lapwing.journal._gpu import Gpus, jax_memory
from lapwing.journal._system import Meter, Sampler, read_system


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lapwing-system"]


def until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_sample_is_what_the_process_uses():
    meter = Meter()
    ballast = np.ones(50 << 20, np.uint8)
    before, began = time.process_time(), time.monotonic()
    while time.process_time() - before < 0.3:
        pass
    share = 100 * 0.3 / (time.monotonic() - began)  # Others may have had the core in between.
    sample = meter.sample()
    assert 0.5 * share <= sample["cpu_percent"] <= 130
    assert ballast.nbytes < sample["memory_bytes"] < 100e9
    assert 0 < sample["machine_cpu_percent"] <= 100
    assert sample["machine_memory_bytes"] >= sample["memory_bytes"] / 2
    assert abs(sample["time"] - time.time()) < 5


def test_a_run_has_samples_from_its_second_on_and_a_last_one(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_system.Sampler.__init__, "__defaults__", (False, 0.02, 3600.0, 1000))
    before = samplers()
    with Run.create("demo", runs_dir=tmp_path) as run:
        run.log(step=0, loss=1.0)
        until(lambda: len(run.system().get("time", ())) == 1)
    assert {*samplers()} <= {*before}
    columns = Run.open(run.folder).system()
    assert len(columns["time"]) == 2
    assert (columns["memory_bytes"] > 1e6).all()
    with Run.reopen(run.folder) as again:
        again.log(step=1, loss=1.0)
        until(lambda: len(run.system()["time"]) == 3)


def test_a_run_of_less_than_a_second_has_no_samples(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        pass
    assert run.system() == {}
    assert not (run.folder / "system.jsonl").exists()


def test_a_file_of_bounded_size_covers_the_whole_run(tmp_path: Path):
    sampler = Sampler(tmp_path, first_s=3600.0, most=8)
    sampler.stop()
    for moment in range(100):
        sampler._write({"time": moment})
        assert len(read_system(tmp_path)["time"]) < 8
    times = read_system(tmp_path)["time"]
    assert times[0] == 0
    assert times[-1] > 90
    assert sampler._every_s > _system.EVERY_S


def test_a_run_that_nobody_ends_and_a_folder_that_is_gone_end_the_thread(tmp_path: Path):
    before = samplers()
    run = Run.create("demo", runs_dir=tmp_path)
    assert samplers() == before  # It has recorded nothing and may still be refused.
    run.log(step=0, loss=1.0)
    (thread,) = [thread for thread in samplers() if thread not in before]
    del run
    gc.collect()
    until(lambda: not thread.is_alive())
    sampler = Sampler(tmp_path / "gone", first_s=0.01)
    until(lambda: not sampler._thread.is_alive())


def test_jax_is_asked_only_where_it_is_in_use(monkeypatch):
    device = SimpleNamespace(memory_stats=lambda: {"bytes_in_use": 7_000_000})
    cpu = SimpleNamespace(memory_stats=lambda: None)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=lambda: [device, cpu]))
    assert jax_memory() == {"gpu0_memory_bytes": 7_000_000}
    assert Meter(counts_jax=True).sample()["gpu0_memory_bytes"] == 7_000_000
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # Asking this one is an error.
    assert "cpu_percent" in Meter().sample()
    assert "cpu_percent" in Meter(counts_jax=True).sample()
    monkeypatch.delitem(sys.modules, "jax")
    assert jax_memory() == {}


class Driver:
    """NVML with three GPUs, of which the middle one does not say its use."""

    def __init__(self) -> None:
        self.nvmlInit_v2 = lambda: 0

    def nvmlDeviceGetCount_v2(self, count) -> int:
        count._obj.value = 3
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device) -> int:
        device._obj.value = index + 1
        return 0 if index < 3 else 2

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device) -> int:
        device._obj.value = 3
        return 0 if uuid == b"GPU-c" else 2

    def nvmlDeviceGetUtilizationRates(self, device, use) -> int:
        use._obj.gpu = 10 * device.value
        return 3 if device.value == 2 else 0

    def nvmlDeviceGetMemoryInfo(self, device, memory) -> int:
        memory._obj.used = device.value << 30
        return 0


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, {"gpu0_percent": 10, "gpu0_memory_bytes": 1 << 30, "gpu1_memory_bytes": 2 << 30}),
        ("2,0", {"gpu0_percent": 30, "gpu0_memory_bytes": 3 << 30, "gpu1_memory_bytes": 1 << 30}),
        ("GPU-c", {"gpu0_percent": 30, "gpu0_memory_bytes": 3 << 30}),
        ("7,0", {}),
        ("", {}),
    ],
)
def test_the_gpus_of_a_process_are_those_that_it_may_use(monkeypatch, visible, found):
    monkeypatch.setattr("ctypes.CDLL", lambda name: Driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sample = Gpus().sample()
    assert {name: sample.get(name) for name in found} == found
    assert bool(sample) == bool(found)


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    def missing(name: str):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert Gpus().sample() == {}


def test_samples_without_a_time_are_none(tmp_path: Path):
    (tmp_path / _system.FILE).write_text('{"cpu_percent": 5.0}\n')
    assert read_system(tmp_path) == {}

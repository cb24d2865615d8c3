"""Benchmarks that only the project runs: `python -m benchmarks.NAME` or `make bench-NAME`, in the root folder.

Each module has a `Config`, `run(config)` and `show(results)`, as those of `lapwing bench`, and measures with
`lapwing.bench.measure`. Results are written to benchmarks/results. In those from before version 0.2 the learning rate
is called `rate`.
"""

"""The files that `lapwing new` writes: real experiments, to start from and to change."""

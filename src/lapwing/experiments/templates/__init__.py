"""The files that `lapwing new` writes: real experiments, to begin with and to change."""

"""The functions behind the commands of `lapwing.cli`, which imports them when they are called."""

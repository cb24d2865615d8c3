"""The doctor: mistakes that a machine finds in a second, each found once the hard way in somebody's lab journal."""

from ._report import CheckError, CheckInputError, Report
from ._structure import structure

__all__ = ["CheckError", "CheckInputError", "Report", "structure"]

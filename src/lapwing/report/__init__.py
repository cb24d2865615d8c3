"""What a person looks at: tables, pictures and pages made of a run folder or of what is still in memory.

Drawing libraries are imported by the functions that draw, so that a table costs no import of matplotlib.
"""

from ._laps import lap_picture, lap_table
from ._loops import loop_picture

__all__ = ["lap_picture", "lap_table", "loop_picture"]

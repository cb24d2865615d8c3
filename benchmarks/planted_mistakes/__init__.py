"""Mistakes that people make when they train, planted in programs that are right otherwise, and correct programs that
look as if something were wrong. They test the doctor from outside:

    lapwing bench doctor --folder benchmarks/planted_mistakes --out SOMEWHERE

`silent_bugs` has 44 mistakes, each with its correct twin; `clean_programs` has 17 correct programs. `harm` trains each
mistake and its twin, and measures what the mistake costs.
"""

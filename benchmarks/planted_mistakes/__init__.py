"""Mistakes that people make when they train, planted in programs that are right otherwise, and correct programs that
look as if something were wrong. They test the doctor from outside, in the root of a checkout:

    from lapwing.bench.doctor import Config, run, show
    show(run(Config(folder="benchmarks/planted_mistakes", out="out")))

`silent_bugs` has 44 mistakes, each with its correct twin; `clean_programs` has 17 correct programs. `harm` trains each
mistake and its twin, and measures what the mistake costs.

`benchmarks/results/planted-mistakes-cpu.json` is what the doctor said when it first saw the programs. It is not written
again: a doctor that was changed after looking at them has other results, which have another name.
"""

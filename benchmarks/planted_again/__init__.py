"""A second set of planted mistakes and of correct programs that look suspicious, for a doctor whose rules were written
after looking at the first set. It has the form of `planted_mistakes`, and is run in the root of a checkout:

    from lapwing.bench.doctor import Config, run, show
    show(run(Config(folder="benchmarks/planted_again", out="out")))

`silent_bugs` has 44 mistakes, each with its correct twin; `clean_programs` has 17 correct programs.
"""

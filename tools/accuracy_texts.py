"""The sentences of the page of accuracy that do not depend on figures."""

RANGES = """
P10 to P90, so that 80 % would be right. Coverage and width (high - low, over likely) of each group
of at least 15 runs, with its source held out, with the model of the run held out, and as shipped
(which has seen these runs). The last column is the width as shipped over the group's median error;
four is about what a normal curve needs, more where errors have a long tail.
"""
RANGES_HEAD = (
    "| figure | runs of | runs | source held out | | model held out | | as shipped | "
    "| width / median error |"
)
RELIABILITY = """
![Reliability of the ranges](accuracy-reliability.svg)

The share of runs that had at most what was given a probability, with each source held out and with
each model of a source held out; the diagonal would be right, the grey band is ten points around it.
"""
METHODS = """
### Which way from residuals to ranges

Two were compared on runs that were held out: hierarchical Bayes, which shrinks the scale of a cell
of like runs towards the tier before it, and conformal prediction by cells. The interval score
counts the width (as a logarithm) and ten times every miss: lower is better.
"""
CHOSEN = """
Hierarchical Bayes has the lower score in {won} of {all} comparisons, and is off 80 % by {own:.0%}
on average, conformal prediction by {other:.0%}, and to the narrow side. The first ships: where both
are about as good, a range that is too wide does less harm than one that is too narrow, and it has
tails for probabilities and an answer where no cell has enough runs.
"""
VERDICTS = """
{ran:,} predicted runs are known to have run, {oom} to have run out of memory. {missed} of these
were said to fit, {false} of those not to; {tight} are called tight. {skipped} more ran out of
memory and are skipped, since their rows leave open what was run.

Every wrong verdict:
"""
BOUNDARY = """
Runs published as the largest that fits, or as the first that does not:
"""
FIELD = """
Reports of users whose job ran out of memory are held against `tuneplan oom` on
[a page of their own](internals/field_reports.md); those that state model, card, length and batch
stand in `evidence/field.toml` and count above.
"""
PILOTS = """
Figures of pilots (a longer run after a pilot on the same machine) have no row: no published run
comes with one.
"""

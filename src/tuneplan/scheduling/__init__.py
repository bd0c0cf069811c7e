"""Several jobs on a pool of machines: who runs where and when, by OR-Tools CP-SAT.

May import ``spec`` and what is below it. Read ``solver.py`` first.
"""

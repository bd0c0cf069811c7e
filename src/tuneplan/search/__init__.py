"""Many candidates at once: which are not dominated, in which order; pure.

Read first: ``pareto.py``, ``ranking.py``.
"""

"""Many candidates: enumerate, prune, Pareto, rank; pure."""

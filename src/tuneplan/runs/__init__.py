"""Measured runs: rows of a CSV as typed values, as jobs, and predictions held against them."""

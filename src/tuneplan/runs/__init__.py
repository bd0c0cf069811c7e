"""Measured runs as published: rows to jobs and measurements."""

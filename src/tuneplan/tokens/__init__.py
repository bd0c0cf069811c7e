"""A data set to its token statistics."""

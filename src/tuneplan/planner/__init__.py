"""The use-cases, one verb a module; the only room that knows the others."""

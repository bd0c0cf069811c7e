"""A short real run of a planned job: a child process trains, its parent watches and measures.

The parent imports no PyTorch. May import tracing (for models and adapters) and below; read
``runner.py`` first.
"""

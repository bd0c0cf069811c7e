"""The GPU-free trace: the real training code runs on a device that allocates nothing.

Importing this package loads no heavy library; ``trace`` starts a child process that does.
"""

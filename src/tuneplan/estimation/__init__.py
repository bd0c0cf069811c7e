"""The arithmetic: bytes, operations, seconds of one job; pure, one module per question."""

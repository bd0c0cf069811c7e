"""Answers to things to read: tables and text; the only room that rounds."""

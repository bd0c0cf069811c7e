"""What it costs: money for hours, energy; pure."""

"""tuneplan: whether a fine-tuning job fits, how long it takes, what it costs, what to run it on."""

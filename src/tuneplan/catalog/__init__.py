"""What is known of models, chips, links and prices: bundled facts, the user's own files before them."""

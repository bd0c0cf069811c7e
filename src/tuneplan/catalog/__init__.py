"""What is known of models, chips, links and prices; the user's own files win over ours."""

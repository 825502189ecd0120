"""What things cost, each in a module of its own: `python -m minicache.bench.<name>`."""

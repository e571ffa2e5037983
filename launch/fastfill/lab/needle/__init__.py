"""A tiny model that retrieves: its task, its weights, and the script that trained them."""

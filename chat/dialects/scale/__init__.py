"""The Scale dialect. Its routes are not served yet: the paths answer in its error shape."""

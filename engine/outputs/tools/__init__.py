"""Tool calls in a model's output: one small streaming parser per format, chosen by name from `registry`."""

"""Models that write down speech, by the modules of transformers, window by window."""

"""What child processes of a worker make of media: the inputs of encoders. May import torch and transformers."""

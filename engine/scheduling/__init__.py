"""Which tokens of which sequences are computed next, and which cache blocks hold them. Pure Python: knows no tensors."""

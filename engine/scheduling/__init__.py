"""The scheduler: which tokens of which sequences a step computes, and which cache blocks hold them. No tensors."""

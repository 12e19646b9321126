"""A step on the device: the plan becomes tensors, the model runs over the paged cache, and the rows that sample become
logits.
"""

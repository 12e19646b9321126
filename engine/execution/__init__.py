"""The execution of a step: the plan becomes tensors, the model runs over the paged cache, and logits come out."""

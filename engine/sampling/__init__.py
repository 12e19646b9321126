"""From logits to the next token of each sequence, in the order of docs/api. Needs torch."""

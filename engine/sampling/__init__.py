"""From logits to the next token of each sequence, in the order of docs/api: masks, penalties, filters, draw. Needs torch."""

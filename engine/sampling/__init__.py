"""From logits to the next token of each sequence: masks, penalties, filters, draw, in the order of docs/api. Needs
torch."""

"""How Django writes dates in each language: as the console's own pages do, so that one page has one form."""

"""The published clients, unmodified, against a served Lightcone, each in its own environment with its own pins.

A client has a folder: its pins (`requirements*.txt`, or `package.json` and its lock) and `script.*`, which drives it
and prints a line for each feature. `catalogue.py` lists the clients, `environments.py` installs them, with the model
that agents need (`agent_model.py`), `test_clients.py` runs them, and `table.py` writes the results into
docs/api/compatibility.md. `make contract` does all of that.
"""

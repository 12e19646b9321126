"""How a request that a route has taken becomes an answer, whatever its dialect and its shape. By the steps of completion.py:

accepting    key, size, JSON and checks: the values of a request (1, 2)
starting     model, rights, limits: a run on its way to a worker (3, 4)
admission    the wait for the worker's yes; endings: what the last event means (5)
answer       one JSON object, or streaming: frames, with pings where a run is silent (6)
keeping      the answer beside sending it · heads: what is known before its first token · sent_names: failures name what was sent
runs         several runs of one request · prompt_reading: a prompt, and no answer · rejoining: a run that has lost its reader
"""

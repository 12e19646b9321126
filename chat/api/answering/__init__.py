"""How a request that a route has taken becomes an answer, whatever its dialect and its shape.

pipeline    from the HTTP request to a run on its way to a worker
streaming   from that run to one JSON object or to frames
multi_run   several runs of one request
storage     answers that are kept, and runs that are read again
"""

"""Our HTTP server: Daphne with bounds. Stock Daphne spools any body to a file, waits for any header, and buffers for any reader.

Kept here, before anything of Django runs: sizes of target, headers and body (413 while it is still arriving), times for headers, body
and idle connections, the number of connections, and the bytes that wait for a reader who does not read; an answer of known length is
sent as fast as it is read instead. All numbers: HttpLimits.
A refused client gets an error in the shape that `describe` gives it, then the connection closes. Framing itself is Twisted's: both
lengths, bad chunks and NUL in a header end there with 400.

reactor   Twisted's, on asyncio's loop
bounds    what is given to a server: its limits, the shape of its errors
request   one request
channel   one connection: its clock, what it refuses to read
outgoing  what waits to be sent on a connection, and for how long
server    the connections that are open, and the stop that lets running answers end
"""

from chat.http_server.server import serve

__all__ = ["serve"]

"""Our HTTP server: Daphne with bounds. Stock Daphne spools any body to a file, waits for any header, and buffers for any reader.

Kept here, before anything of Django runs: sizes of target, headers and body (413 while it is still arriving), the bytes of all bodies
together, times for headers, body and idle connections, the number of connections, of all and of one address, and the bytes that wait for
readers who do not read; an answer of known length is sent as fast as it is read instead. All numbers: HttpLimits. A body comes only
once the application has looked at the headers of its request.
A refused client gets an error in the shape that `describe` gives it, then the connection closes. Framing itself is Twisted's: both
lengths, bad chunks and NUL in a header end there with 400.

reactor   Twisted's, on asyncio's loop
bounds    what is given to a server: its limits, who lets bodies in, the shape of its errors
request   one request
channel   one connection: its clock, what it refuses to read
connections  those that are open, and who gives way where there are too many
budget    the bytes of all bodies
outgoing  what waits to be sent on a connection, and for how long
stop      how far the stop of the server has come
server    what all connections share, and the stop that lets running answers end
"""

from lightcone_site.http_server.server import Manners, serve

__all__ = ["Manners", "serve"]

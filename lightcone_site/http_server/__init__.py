"""Our HTTP server: Daphne with bounds. Stock Daphne spools any body, waits for any header, and buffers for any reader.

The bounds of HttpLimits apply before any Django code. An answer of known length is sent only as fast as it is read. A
refused client gets an error made by `render_error`, then the connection closes. Twisted answers bad framing with 400:
both lengths, bad chunks, NUL in a header.

This package alone may touch private attributes, those of Twisted and Daphne.

server       the server, and the stop that lets running answers end
channel      one connection: its clock, and what it refuses to read; request: one request
state        what a server is given, and what its connections share
connections  the open connections, and which of them is closed if there are too many
budget       the bytes of all bodies; outgoing: the bytes that wait to be sent on a connection
reactor      Twisted's, on asyncio's loop
"""

from lightcone_site.http_server.server import serve
from lightcone_site.http_server.state import ServerOptions

__all__ = ["ServerOptions", "serve"]

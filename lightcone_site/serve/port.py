"""Whether the web process will be able to listen."""

from __future__ import annotations

import socket


def port_problem(host: str, port: int) -> str:
    """Why nothing can listen there; '' if something can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return f"cannot be listened on: {error.strerror or error}"
    return ""

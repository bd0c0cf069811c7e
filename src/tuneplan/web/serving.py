"""The server: on this machine alone, until it is interrupted."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from tuneplan.errors import InputError
from tuneplan.language import message
from tuneplan.web.settings import Settings


def serve(
    settings: Settings, *, host: str, port: int, ready: Callable[[str], None] = lambda _url: None
) -> None:
    """Answer until the user interrupts.

    Args:
        settings: What the page may do.
        host: A loopback address.
        port: 0 for any that is free.
        ready: Told the address once the page can be asked.

    Raises:
        InputError: The host is no loopback address, or the port is taken.
    """
    import uvicorn

    from tuneplan.web.app import application

    listening = _listening(host, port)
    name = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        application(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=256,
        h11_max_incomplete_event_size=64 * 2**10,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )
    ready(f"http://{name}:{listening.getsockname()[1]}/")
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that only this machine reaches."""
    if not is_loopback(host):
        text = message(
            "only_this_machine",
            "{host} is reached from elsewhere: the page has no passwords, so it is served to this "
            "machine alone (127.0.0.1, ::1, localhost); from elsewhere use an SSH tunnel",
            host=host,
        )
        raise InputError(text)
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address, port))
        found.listen(128)
    except OSError as error:
        found.close()
        text = message(
            "port_is_taken",
            "port {port} of {host} cannot be used: {why}; try another --port, or 0 for any",
            port=port,
            host=host,
            why=error.strerror or str(error),
        )
        raise InputError(text) from None
    return found


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

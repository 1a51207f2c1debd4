"""The proxy inside other people's aiohttp applications: a middleware that guards their handlers in process.

    guard      `middleware(config)`: which requests it takes, and which go on to their handlers untouched
    upstream   `HandlerUpstream`: a handler of the application in place of a service on the network

A call takes the same path as in the sidecar: `decide` judges it, and only a checked call is sent to the handler. Inside
this room `aiohttp` is the library; imports are absolute.
"""

from proxy.aiohttp.guard import Guard, middleware

__all__ = ["Guard", "middleware"]

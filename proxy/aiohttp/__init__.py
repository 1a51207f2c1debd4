"""The proxy inside other people's aiohttp applications: a middleware that guards their handlers in process.

    guard      `middleware(config)`: which requests it takes, and which go on to their handlers untouched
    upstream   `HandlerUpstream`: a handler of the application in the place of a service on the network
    request    the request that a handler gets: that of the client, with the checked arguments as its body
    capture    the answer of a handler, caught as it is written

The call goes the way of every other: `decide` judges it, and only what it lets through is sent to the handler.
Inside this room `aiohttp` is the library; imports are absolute.
"""

from proxy.aiohttp.guard import Guard, middleware

__all__ = ["Guard", "middleware"]

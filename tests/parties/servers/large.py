"""Two MCP servers whose tools answer at length: `high` of `mcp` 2.x, which writes a text block per item of a list, and
`fastmcp`, which writes one. Both list an `outputSchema`, which their clients hold each result to.

Runs in `.parties/py2`, over stdio: large.py NAME.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import sys

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel


class Order(BaseModel):
    id: int
    email: str
    note: str


def orders(limit: int = 2000) -> list[Order]:
    """Lists orders."""
    return [Order(id=number, email=f"zoe{number}@example.org", note="x" * 40) for number in range(limit)]


def log(lines: int = 5000) -> str:
    """Reads a log."""
    return "a line of a log\n" * lines


if __name__ == "__main__":
    server = FastMCP("fastmcp") if sys.argv[1] == "fastmcp" else MCPServer("high")
    for function in (orders, log):
        server.tool()(function)
    server.run(transport="stdio", **({"show_banner": False} if sys.argv[1] == "fastmcp" else {}))

"""Imports: descriptions of tools, read from where they are published, become files that a user can edit.

    openapi.py      an OpenAPI description -> Harvest
    mcp.py          an MCP server's list of tools -> Harvest
    mcpservers.py   a client's config that names MCP servers -> a config
    fetch.py        requests to the server that publishes a description
    harvest.py      what was found and what not, and its record `imported.json`
    files.py        Harvest -> config, schemas and record, as YAML
    live.py         compares a record with its sources as they are now

Nothing here judges or serves a call: the files written are a config like any other (`check` reads them back).
"""

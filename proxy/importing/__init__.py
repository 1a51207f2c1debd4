"""Descriptions of tools, read from where they are published, written as files that a user can edit.

    reading.py    a URL or a file -> Harvest                       harvest.py    what was found, and what not
    openapi.py    an OpenAPI description -> Harvest                fetch.py      a request to the server that has it
    mcp.py        an MCP server's list of tools -> Harvest         yamltext.py   JSON values -> YAML
    files.py      Harvest -> config, schemas, record               record.py     imported.json: what it was made of
    live.py       a record against its sources as they are         drift.py      two schemas -> what has changed

Nothing here judges a call or serves one: the files written are a config like any other (`check` reads them back).
"""

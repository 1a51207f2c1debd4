"""Imports: descriptions of tools, read from where they are published, become files that a user can edit.

    harvest.py      the tools of a source, those left out, and the record `imported.json`
    fetch.py        requests to the server that publishes a description
    openapi.py      an OpenAPI description -> Harvest
    files.py        Harvest -> config, schemas and record, as YAML
    live.py         compares a record with its sources as they are now

Another plugin that knows a kind of description (mcp) reads it into a Harvest too. Nothing here validates or serves a
call: the files written are a config like any other (`check` reads them back).
"""

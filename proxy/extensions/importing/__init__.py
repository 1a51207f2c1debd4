"""Imports: descriptions of tools, read from where they are published, become files that a user can edit.

    harvest.py      the tools of a source, those left out, and the record `imported.json`
    fetch.py        requests to the server that publishes a description
    files.py        Harvest -> config, schemas and record, as YAML
    live.py         compares a record with its sources as they are now

Extensions that know a kind of description (operations, mcp) read it into a Harvest. Nothing here judges or serves a
call: the files written are a config like any other (`check` reads them back).
"""

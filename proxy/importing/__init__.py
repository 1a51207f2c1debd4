"""Descriptions of tools, read from where they are published, written as files that a user can edit.

    fetch.py      a request to the server that publishes them      yamltext.py   JSON values -> YAML
    openapi.py    an OpenAPI description -> Harvest                harvest.py    what was found, and what not
    files.py      Harvest -> config, schemas, record               record.py     imported.json: what it was made of
    drift.py      two schemas -> what has changed

Nothing here judges a call or serves one: the files written are a config like any other (`check` reads them back).
"""

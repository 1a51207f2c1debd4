"""Reads files of a config: YAML with places, `${...}` references and secrets; checks the structure by the schema."""

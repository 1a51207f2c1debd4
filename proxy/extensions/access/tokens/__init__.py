"""Tokens that issuers have signed (RFC 7519): their keys, and their checks."""

"""Requests of the proxy's own that are not calls, for the extensions that ask a server (`outgoing_client.py`)."""

"""The sections of a config: each file reads one of them from the written text into its type of `config/model.py`."""

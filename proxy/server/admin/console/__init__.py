"""The console: its static files, and the pages that only they request. Loaded at the first request for one of them."""
